#!/usr/bin/env bash
# Tables 3 and 4 with a mini model of 25 million parameters on one GPU, all within ten minutes
# (configs/ablation/mini_gpu.yaml says what is run and holds every budget):
#   bash launch/gpu_tables.sh --out DIR                where the project is installed and a GPU is seen
#   bash launch/gpu_tables.sh --dry-run                print the commands of the sweep and stop
# A bare machine with torch and transformers and no network: fetch what it lacks on another one, carry the folder over.
#   bash launch/gpu_tables.sh --fetch wheels           wheels for Python 3.12 on x86-64 Linux
#   bash launch/gpu_tables.sh --wheels wheels --out DIR
# Further options:
#   --seconds N     for all of it, packing included (default: 570)
#   --parallel N    rows at a time on the one GPU (default: 8)
#   --table 3|4|both    (default: both)
#   --seed N        of every row (default: 0)
# When time runs out, the sweep is stopped and the rows that are finished make the tables. DIR then holds figures.txt,
# results.tar.gz (unpack it in the checkout: results/midi, whose rows count as done from then on), tables.tar.gz and
# logs.tar.gz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

study=configs/ablation/mini_gpu.yaml
run=runs/ablation/midi
results=results/midi
packing_s=50 # to stop the sweep, make the tables of what is there and pack
out= wheels= dry_run=
seconds=570 parallel=8 table=both seed=0

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }
refuse() {
    echo "launch/gpu_tables.sh: $1" >&2
    exit 2
}

if [ "${1:-}" = "--fetch" ]; then
    [ $# -eq 2 ] || refuse "--fetch takes a folder"
    exec bash launch/gpu_check.sh --fetch "$2"
fi
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit ;;
        --dry-run) dry_run=1; shift; continue ;;
        --out | --wheels | --seconds | --parallel | --table | --seed) ;;
        *) refuse "unknown option $1; see --help" ;;
    esac
    [ $# -ge 2 ] || refuse "$1 takes a value"
    printf -v "${1#--}" '%s' "$2"
    shift 2
done
least=$((2 * packing_s))
[[ $seconds =~ ^[0-9]+$ && $seconds -gt $least ]] || refuse "--seconds must be above $least, got $seconds"
case $table in
    both) tables="3 4" ;;
    3 | 4) tables=$table ;;
    *) refuse "--table takes 3, 4 or both, got $table" ;;
esac

python=${PYTHON:-python3}
[ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ] && python=.venv/bin/python
sweep=("$python" launch/ablate.py --study "$study" --table "$table" --seeds "$seed" --parallel "$parallel")
if [ -n "$dry_run" ]; then
    exec "${sweep[@]}" --dry-run
fi
[ -n "$out" ] || refuse "--out DIR is missing: where the figures go"
mkdir -p "$out"

if [ -n "$wheels" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl
    export PYTHONPATH="$site:$PWD${PYTHONPATH:+:$PYTHONPATH}"
fi
# A thread each: the rows share the cores, and all that is heavy is on the GPU. Memory that is freed can grow elsewhere.
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export PYTORCH_ALLOC_CONF=expandable_segments:True
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    refuse "torch sees no GPU; --dry-run needs none"

echo "installed after $SECONDS s"
status=0
left=$((seconds - packing_s - SECONDS))
timeout --signal=TERM --kill-after=30 "$left" "${sweep[@]}" 2>&1 | tee "$out/sweep.txt" || status=$?
# 0: all done; 1: a row failed; 124: time ran out.
echo "sweep ended with status $status after $SECONDS s"
mkdir -p "$run" "$results"
if [ "$status" -ne 0 ]; then
    for number in $tables; do
        timeout 15 "$python" eval/ablation_table.py --table "$number" --results "$results" --seeds "$seed" \
            --images "$run/world" --out "$run/table-$number.html" || echo "no table $number: see above"
    done
fi

# Seconds of every command, finished or not, from the marks of the sweep.
seconds_spent() {
    "$python" - "$run/marks" <<'PY'
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    for stage, mark in json.loads(path.read_text()).items():
        print(f"{path.stem:<36} {stage:<16} {mark['seconds']:7.1f} s{'' if mark['finished'] else '  unfinished'}")
PY
}
{
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
    echo "sweep: status $status, $SECONDS s with installation"
    echo "rows finished: $(find "$results" -name "*-$seed.json" | wc -l)"
    seconds_spent
    for file in runs/midi/model/scores.json "$run"/table-*.md; do
        [ -f "$file" ] && printf '\n%s\n' "$file" && cat "$file"
    done
} > "$out/figures.txt" || true
pack() { # ARCHIVE WORD...: of what is there
    local archive=$1 word there=()
    shift
    for word in "$@"; do [ -e "$word" ] && there+=("$word"); done
    [ ${#there[@]} -eq 0 ] || tar -czf "$out/$archive" "${there[@]}"
}
pack results.tar.gz "$results"
pack tables.tar.gz "$run"/table-*
pack logs.tar.gz "$run/logs" "$run/marks"
cat "$out/figures.txt"
[ "$status" -eq 0 ] || [ "$status" -eq 124 ]
