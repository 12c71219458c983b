#!/usr/bin/env bash
# Make .venv and install the project, with the extras given: bash launch/setup.sh gpu
# The other scripts source it; in your own shell run it, then: source .venv/bin/activate
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "Python 3.11 or newer is needed, $python is $("$python" --version 2>&1); set PYTHON=/path/to/python3" >&2; exit 2; }

# A finished installation leaves the fingerprint of what it was made from.
install_once() { # NAME COMMAND...: run the command unless it ran before with the same pyproject.toml
    local mark=".venv/.installed-$1" want
    want="$(cksum < pyproject.toml) ${*:2}"
    [ -f "$mark" ] && [ "$(cat "$mark")" = "$want" ] && return
    echo "== installing: $1 (may take minutes)"
    "${@:2}" > .venv/install.log 2>&1 || { cat .venv/install.log >&2; echo "installing $1 failed" >&2; exit 1; }
    echo "$want" > "$mark"
}

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
# torch first: a range would take whatever build is newest.
install_once torch "${pip[@]}" "torch==2.13.0"
install_once project "${pip[@]}" -e .
for extra in "$@"; do
    install_once "$extra" "${pip[@]}" -e ".[$extra]"
done
export PATH="$PWD/.venv/bin:$PATH"
