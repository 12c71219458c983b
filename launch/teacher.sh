#!/usr/bin/env bash
# Servers for the teachers of data_gen/build_cot.py: vLLM with tensor parallelism, one or several replicas per model.
#
#   bash launch/teacher.sh reasoner      QVQ-72B-Preview for the stage `reason`: a few questions per task, minutes
#   bash launch/teacher.sh writer        Qwen2.5-VL-72B-Instruct for `rules`, `write` and `verify`: every question
#   bash launch/teacher.sh both          both at once, for a run in one go
#
#   --reasoner-model NAME, --writer-model NAME   other models; a folder works too
#   --tensor-parallel N    GPUs per replica (default 4)
#   --replicas N           per model (default 2; with `both` 1)
#   --gpus 0,1,...         which GPUs (default: CUDA_VISIBLE_DEVICES, else those that nvidia-smi lists)
#   --host H, --port P     first port, one more for every replica (default 127.0.0.1 and 8000)
#   --max-model-len N      tokens of a request and its reply (default 16384)
#   --max-pixels N         larger images are made smaller; default: as sent, at most 1600x900 pixels
#   --wait S               seconds until all must answer (default 3600: a first start downloads 150 GB per model)
#   --logs DIR             what the servers say (default runs/teacher)
#   --dry-run              print the commands only
#   -- WORDS               further options of `vllm serve`, such as -- --quantization fp8
#
# It waits until every server answers, prints the options for build_cot.py, and stops all of them on Ctrl-C.
#
# Eight GPUs of 80 GB. A 72B model in bfloat16 takes 37 GB on each of 4 GPUs, which leaves room for the keys and
# values of about 100 requests at once; on 2 GPUs it leaves none. As the reasoner has only a few questions, let it have
# all GPUs first, then the writer: `reasoner`, build_cot.py --stages reason, Ctrl-C, `writer`, build_cot.py --stages
# rules,write,verify --resume. `both` puts one replica of each on 4 GPUs; the reasoner's are idle most of the time.
# GPUs of 141 GB hold a replica on two: --tensor-parallel 2 --replicas 4.
#
# If OPENAI_API_KEY is set, the servers ask for it and build_cot.py sends it; needed when --host is not this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "teacher.sh: $*" >&2
    exit 2
}

role="" reasoner=Qwen/QVQ-72B-Preview writer=Qwen/Qwen2.5-VL-72B-Instruct
parallel=4 replicas="" gpus=${CUDA_VISIBLE_DEVICES:-} host=127.0.0.1 port=8000
length=16384 pixels="" patience_s=3600 logs=runs/teacher dry="" more=()
while [ $# -gt 0 ]; do
    case $1 in
    reasoner | writer | both) role=$1 && shift && continue ;;
    --dry-run) dry=yes && shift && continue ;;
    --help | -h) sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' launch/teacher.sh && exit ;;
    --) shift && more=("$@") && break ;;
    -*) [ $# -gt 1 ] || fail "$1 needs a value; bash launch/teacher.sh --help tells which" ;;
    *) fail "unknown word '$1'; one of reasoner, writer, both is needed" ;;
    esac
    case $1 in
    --reasoner-model) reasoner=$2 ;;
    --writer-model) writer=$2 ;;
    --tensor-parallel) parallel=$2 ;;
    --replicas) replicas=$2 ;;
    --gpus) gpus=$2 ;;
    --host) host=$2 ;;
    --port) port=$2 ;;
    --max-model-len) length=$2 ;;
    --max-pixels) pixels=$2 ;;
    --wait) patience_s=$2 ;;
    --logs) logs=$2 ;;
    *) fail "unknown option $1; bash launch/teacher.sh --help lists all" ;;
    esac
    shift 2
done
[ -n "$role" ] || fail "which teacher: reasoner, writer or both? bash launch/teacher.sh --help tells more"
if [ "$role" = both ]; then roles=(reasoner writer); else roles=("$role"); fi
replicas=${replicas:-$((3 - ${#roles[@]}))}
for number in "$parallel" "$replicas" "$port" "$length" "${pixels:-1}" "$patience_s"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail "'$number' is given where a whole number of at least 1 is needed"
done

needed=$((${#roles[@]} * replicas * parallel))
if [ -z "$gpus" ]; then
    gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | paste -sd, -) || true
fi
if [ -z "$gpus" ] && [ -n "$dry" ]; then # commands are shown where there is no GPU, too
    gpus=$(seq -s, 0 $((needed - 1)))
fi
IFS=, read -ra gpu <<< "$gpus"
if [ ${#gpu[@]} -lt $needed ]; then
    fail "$needed GPUs are needed, for ${#roles[@]} model(s) with $replicas replica(s) on $parallel each;" \
        "there are ${#gpu[@]} (${gpus:-none}). Change --tensor-parallel, --replicas or --gpus"
fi
if [ -z "$dry" ] && ! command -v vllm > /dev/null; then
    fail "no vllm on PATH; install it in an environment of its own: pip install 'vllm>=0.22,<=0.31'"
fi

# A key goes through the environment, as all users of a machine see command lines.
if [ -n "${OPENAI_API_KEY:-}" ]; then export VLLM_API_KEY=$OPENAI_API_KEY; fi
shown=$host
if [ "$host" = 0.0.0.0 ]; then shown=$(hostname); fi
options=(--host "$host" --tensor-parallel-size "$parallel" --max-model-len "$length")
# One picture a request, and no room kept for videos. Requests about one picture begin alike: it is read once.
options+=(--limit-mm-per-prompt '{"image": 1, "video": 0}' --enable-prefix-caching)
if [ -n "$pixels" ]; then options+=(--mm-processor-kwargs "{\"max_pixels\": $pixels}"); fi
options+=(${more[@]+"${more[@]}"})

pids=() names=() ports=()
lives() { # PID: whether any process of the group of this server does; where nothing reaps the dead, these do not count
    ps -eo pgid=,stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ { found = 1 } END { exit !found }'
}
stop() {
    trap '' INT TERM HUP
    trap - EXIT
    local pid end=$((SECONDS + 20))
    # Each server is the head of a process group, which its workers are in too.
    for pid in "${pids[@]}"; do kill -TERM -- "-$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do
        while lives "$pid" && [ $SECONDS -lt $end ]; do sleep 0.1; done
        kill -KILL -- "-$pid" 2> /dev/null || true
    done
    if [ ${#pids[@]} -gt 0 ]; then echo "teacher.sh: all servers are stopped" >&2; fi
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

tell() { # PLACE WHAT: what became of a server, with the end of its log
    echo "teacher.sh: ${names[$1]} $2; the end of $logs/${names[$1]}.log:" >&2
    tail -n 25 "$logs/${names[$1]}.log" >&2
}

answers() { # PORT: whether the server there lists its models
    python3 - "http://$shown:$1/v1/models" 2> /dev/null << 'PYTHON'
import os, sys, urllib.request
key = os.environ.get("OPENAI_API_KEY", "none")
request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {key}"})
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5).read()
PYTHON
}

for one in "${roles[@]}"; do
    model=${!one}
    for ((replica = 0; replica < replicas; replica++)); do
        place=${#names[@]}
        share=$(IFS=, && echo "${gpu[*]:place * parallel:parallel}")
        names+=("$one-$replica") ports+=($((port + place)))
        command=(vllm serve "$model" --port "${ports[place]}" "${options[@]}")
        if [ -n "$dry" ]; then
            echo "CUDA_VISIBLE_DEVICES=$share ${command[*]@Q}"
            continue
        fi
        if (exec 3<> "/dev/tcp/127.0.0.1/${ports[place]}") 2> /dev/null; then
            fail "port ${ports[place]} is in use; choose others with --port"
        fi
        mkdir -p "$logs"
        CUDA_VISIBLE_DEVICES=$share setsid "${command[@]}" > "$logs/${names[place]}.log" 2>&1 < /dev/null &
        pids+=($!)
        echo "${names[place]}: $model, GPU $share, port ${ports[place]}, log $logs/${names[place]}.log"
    done
done

place=0
while [ -z "$dry" ] && [ $place -lt ${#pids[@]} ]; do
    for other in "${!pids[@]}"; do
        kill -0 "${pids[other]}" 2> /dev/null || { tell "$other" "has ended before it was ready" && exit 1; }
    done
    if answers "${ports[place]}"; then
        echo "${names[place]} answers after $SECONDS s"
        place=$((place + 1))
    elif [ $SECONDS -ge "$patience_s" ]; then
        tell "$place" "does not answer after $patience_s s (--wait)"
        exit 1
    else
        sleep 1
    fi
done

words=() place=0
for one in "${roles[@]}"; do
    urls=()
    for ((replica = 0; replica < replicas; replica++, place++)); do urls+=("http://$shown:${ports[place]}/v1"); done
    words+=("--$one" "$(IFS=, && echo "${urls[*]}")" "--$one-model" "${!one}")
done
echo "for data_gen/build_cot.py: ${words[*]}"
if [ -n "$dry" ]; then exit; fi
echo "Ctrl-C stops the servers."

# build_cot.py gives the work of a server that has ended to the others.
while [ ${#pids[@]} -gt 0 ]; do
    for place in "${!pids[@]}"; do
        if ! kill -0 "${pids[place]}" 2> /dev/null; then
            tell "$place" "has ended"
            kill -KILL -- "-${pids[place]}" 2> /dev/null || true # workers that it left behind
            unset "pids[place]"
        fi
    done
    sleep 1
done
exit 1
