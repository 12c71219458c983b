#!/usr/bin/env bash
# Install what tests need and run them: lint, types, tests. --all adds the slow ones. Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
# The devkit is the oracle of the geometry tests. It declares numpy below 2 but runs on newer ones, hence --no-deps.
devkit() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "nuscenes-devkit==1.2.0" &&
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            cachetools fire matplotlib opencv-python-headless pycocotools pyquaternion scikit-learn "shapely>=2" tqdm
}
# Only the file with the published scoring rules is used, loaded by its path.
oracle() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "evalscope==1.14.1"; }
source launch/setup.sh test
install_once devkit devkit
install_once oracle oracle

marker=()
if [ "${1:-}" = "--all" ]; then marker=(-m "slow or not slow"); shift; fi
# A worker per core with one thread each; the tests of a file stay together, since they share fixtures.
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false
ruff check .
ruff format --check .
mypy
python -m pytest --numprocesses auto --dist loadfile --durations 15 "${marker[@]}" "$@"
