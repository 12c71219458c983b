"""A study whose commands are a small script: what an ablation runs, without anything that takes time."""

from __future__ import annotations

from pathlib import Path

STEP = '''"""--steps of 0.05 s with a bar, then --out but with --lose or --fail in it; notes in --journal."""
import argparse, json, os, sys, time
from pathlib import Path
from tqdm import tqdm

parser = argparse.ArgumentParser()
for name in ("--out", "--fail", "--commands", "--journal", "--config"):
    parser.add_argument(name)
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--lose", action="store_true")
told, others = parser.parse_known_args()
out, journal = Path(told.out), Path(told.journal)

def write(what):
    with journal.open("a") as file:
        file.write(f"{what} {out.parent.name}/{out.name} {os.getpid()} {' '.join(others)}\\n")

write("begin")
for _ in tqdm(range(told.steps), mininterval=0):
    time.sleep(0.05)
if told.fail and told.fail in told.out:
    sys.exit("the reason why it fails")
if told.commands:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"commands": told.commands}))
elif not told.lose:
    out.mkdir(parents=True, exist_ok=True)
write("end")
'''

STUDY = """# A trial.
study: small
model: mini
gpus: {gpus}
data:
  world: "{step} --out {{run}}/world"
training:
  sft: >-
    {step} --config {config} --data {{run}}/world/x --model {{start}} --seed {{seed}} --steps {steps} --out {{train}}
  grpo: >-
    {step} --data {{run}}/world/x --model {{start}} --rewards {{rewards}} --seed {{seed}} --steps {steps}
    --out {{train}}
evaluation:
  greedy: "{step} --ckpt {{checkpoint}} --out {{out}}/greedy"
summary: >-
  {step} --train {{train}} --part a:{{out}}/greedy:x --commands {{commands}} --out {{results}}/{{row}}-{{seed}}.json
table: "{step} --out {{run}}/table-{{table}}"
estimates:
  world: {{steps: 1, seconds_per_step: 1}}
  sft: {{steps: 10, seconds_per_step: 360}}
  grpo: {{steps: 20, seconds_per_step: 360}}
  greedy: {{steps: 1, seconds_per_step: 1}}
"""


def write_study(folder: Path, steps: int = 1, gpus: int = 0, fail: str = "nothing") -> Path:
    """The study file, its script, its config and the place of its journal, a line per command begun and ended."""
    (folder / "step.py").write_text(STEP)
    (folder / "sft.yaml").write_text("# What it is for.\nlearning_rate: 1.0e-3\nmax_steps: 100\n")
    step = f"python {folder / 'step.py'} --journal {folder / 'journal'} --fail {fail}"
    path = folder / "study.yaml"
    path.write_text(STUDY.format(step=step, config=folder / "sft.yaml", steps=steps, gpus=gpus))
    return path


def journal(folder: Path) -> list[str]:
    """What the commands wrote so far."""
    path = folder / "journal"
    return path.read_text().splitlines() if path.is_file() else []


def sweep_words(study: Path, *more: str) -> list[str]:
    """The words of `launch/ablate.py` for this study, everything in its folder, one seed unless `more` says so."""
    folder = study.parent
    where = ["--study", str(study), "--out", str(folder / "run"), "--results", str(folder / "results")]
    return ["--table", "4", "--seeds", "0", *where, *more]
