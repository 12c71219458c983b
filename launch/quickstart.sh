#!/usr/bin/env bash
# The whole chain with the mini model on two CPU cores: rendered world, questions, reasoning, SFT, GRPO, scores, report.
# Much shorter than what the tables are made of (launch/ablate.py), by the same configs.
# Finished stages are skipped when it runs again, unless their command, their config or a stage before them changed.
# RUN=DIR puts the run elsewhere than runs/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
source launch/setup.sh

run=${RUN:-runs/quickstart}
mkdir -p "$run"
export HF_HUB_OFFLINE=1
set -a && source launch/cpu.env && set +a
started=$SECONDS
chain="" # grows with every stage: the checksum of all commands and configs so far

stage() { # NAME COMMAND...
    local mark="$run/.$1.done" begun=$SECONDS how=--resume word
    for word in "${@:2}"; do
        if [[ $word == *.yaml ]]; then chain+=$(cat "$word"); fi
    done
    chain=$(cksum <<< "$chain ${*:2}")
    if [ -f "$mark" ] && [ "$(cat "$mark")" = "$chain" ]; then
        echo "== $1: finished before"
        return
    fi
    if [ -f "$mark" ]; then
        how=--overwrite # it finished, but from something else
        rm "$mark"
    fi
    echo "== $1: ${*:2} $how"
    "${@:2}" "$how"
    echo "$chain" > "$mark"
    echo "== $1: $((SECONDS - begun)) s"
}

launch=(accelerate launch --quiet --config_file launch/accelerate/cpu.yaml)
evaluate=(python eval/surds.py --data "$run/val/questions.jsonl" --limit 40 --max-new-tokens 128 --batch-size 64)

stage world python data_gen/synthetic.py --out "$run/world" --scenes 60 --frames-per-scene 4 --depths-m 7 28 --workers 2
build=(python data_gen/build_surds.py --nuscenes "$run/world" --version v1.0-synthetic --describer truth --depth-ranges fair)
stage train-questions "${build[@]}" --split train --out "$run/train"
stage val-questions "${build[@]}" --split val --out "$run/val"
stage reasoning python data_gen/build_cot.py --data "$run/train/questions.jsonl" --out "$run/cot"
stage sft "${launch[@]}" training/sft.py --config configs/sft/mini.yaml --max_steps 150 --data "$run/cot/cot.jsonl" \
    --out "$run/sft"
stage grpo "${launch[@]}" training/grpo.py --rewards format,loc,acc,logic --config configs/grpo/mini.yaml --max_steps 10 \
    --model "$run/sft" --data "$run/train/questions.jsonl" --held_out "$run/val/questions.jsonl" --held_out_limit 10 \
    --out "$run/grpo"
stage eval-random "${evaluate[@]}" --engine random --label random --out "$run/eval-random"
stage eval-base "${evaluate[@]}" --ckpt mini --label base --out "$run/eval-base"
stage eval-sft "${evaluate[@]}" --ckpt "$run/sft" --label SFT --out "$run/eval-sft"
stage eval-grpo "${evaluate[@]}" --ckpt "$run/grpo" --label SFT-GRPO --out "$run/eval-grpo"

echo "== result"
python eval/report.py "$run"/eval-{random,base,sft,grpo} --out "$run/report.html"
echo "report: $run/report.html ($((SECONDS - started)) s for this call)"
