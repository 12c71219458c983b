#!/usr/bin/env bash
# Does lmms-eval load and score our task pack? Installs lmms-eval in an environment of its own (about 2 GB) and runs its
# loader, its scoring and one evaluation with its dummy model on a small rendered question set.
#   bash tests/benchmarks/plugins_by_hand.sh [FOLDER]
# FOLDER (default: a temporary one) keeps the environment; a second run with it starts from there.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$(mktemp -d)}
python=${PYTHON:-python3}
mkdir -p "$folder"

if [ ! -x "$folder/env/bin/python" ]; then
  "$python" -m venv "$folder/env"
  "$folder/env/bin/pip" install --quiet torch==2.13.0 lmms-eval==0.7.3 "filelock<4" msgspec
  "$folder/env/bin/pip" install --quiet --no-deps --editable "$root"
  # A CPU torch has no operators for torchvision, which then fails to import; lmms-eval's loader does without it.
  "$folder/env/bin/python" -c "import torchvision" 2>/dev/null || "$folder/env/bin/pip" uninstall --quiet --yes torchvision
fi
export HF_HOME="$folder/hf" HF_DATASETS_OFFLINE=1 HF_HUB_OFFLINE=1 PYTHONWARNINGS=ignore

PYTHONPATH="$root/tests" "$folder/env/bin/python" - "$folder/data" <<'PY'
import sys
from pathlib import Path
from small_questions import write_small_set
print("questions:", write_small_set(Path(sys.argv[1]), images=12))
PY
"$folder/env/bin/python" "$root/eval/export.py" --format lmms-eval --data "$folder/data" --out "$folder/pack" --overwrite
PYTHONPATH="$root/tests" "$folder/env/bin/python" "$root/tests/benchmarks/lmms_eval_loader.py" "$folder/pack"

echo "one evaluation by lmms-eval with its dummy model, which says the same to everything:"
"$folder/env/bin/python" -m lmms_eval --model dummy --model_args "response=<answer>Southeast</answer>" \
  --include_path "$folder/pack" --tasks drive_surds --batch_size 1 --log_samples --output_path "$folder/out" \
  >"$folder/lmms_eval.log" 2>&1 || { tail -20 "$folder/lmms_eval.log"; exit 1; }
grep -E "^\|" "$folder/lmms_eval.log"
echo "the same samples under eval/surds.py --replay:"
samples=$(find "$folder/out" -name '*samples_drive_surds.jsonl' | sort | tail -1)
"$folder/env/bin/python" "$root/eval/surds.py" --data "$folder/data" --replay "$samples" --label lmms-eval \
  --out "$folder/replayed" --overwrite 2>"$folder/surds.log" | sed '/^Score/q'
