#!/usr/bin/env bash
# What one GPU does with this project, in at most five minutes, as JSON (tests/benchmarks/gpu_check.py says what):
#   bash launch/gpu_check.sh --out figures.json        where the project is installed and a GPU is seen
#   bash launch/gpu_check.sh --dry-run                 all of it with the tiny model, without a GPU
# A bare machine with torch and transformers and no network: fetch what it lacks on another one, carry the folder over.
#   bash launch/gpu_check.sh --fetch wheels            wheels for Python 3.12 on x86-64 Linux
#   bash launch/gpu_check.sh --wheels wheels --out figures.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
[ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ] && python=.venv/bin/python

if [ "${1:-}" = "--fetch" ]; then
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        --dest "${2:?name a folder}" "trl==1.16.*" "datasets==5.2.*" dill multiprocess msgspec xxhash
    exit
fi
if [ "${1:-}" = "--wheels" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "${2:?name a folder}"/*.whl
    export PYTHONPATH="$site:$PWD${PYTHONPATH:+:$PYTHONPATH}"
    shift 2
fi
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
"$python" tests/benchmarks/gpu_check.py "$@"
