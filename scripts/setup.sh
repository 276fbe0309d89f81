#!/usr/bin/env bash
# setup.sh: make .venv with everything gpudemand offers; does nothing when it is up to date.
# PYTHON=/path/to/python3.12 chooses an interpreter, VENV=folder another place.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
stamp="$venv/.installed"

if [ -e "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then exit 0; fi

supported() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
  supported "$PYTHON" || { echo "setup: PYTHON=$PYTHON is no Python 3.11 or 3.12 that can make a virtual environment." >&2; exit 1; }
  python=$PYTHON
else
  python=
  for candidate in python3.12 python3.11 python3 python; do
    if command -v "$candidate" >/dev/null 2>&1 && supported "$candidate"; then python=$candidate; break; fi
  done
fi
if [ -z "$python" ]; then
  found=$(python3 --version 2>/dev/null || echo "no Python")
  cat >&2 <<TXT
setup: Python 3.11 or 3.12 is needed (giotto-tda and scikit-learn 1.3.2 have no wheels for others); found $found.
       Debian/Ubuntu:  apt-get install python3.11 python3.11-venv
       macOS:          brew install python@3.12
       anywhere:       https://www.python.org/downloads/
       Or say where it is:  make report PYTHON=/path/to/python3.12
TXT
  exit 1
fi

echo "setup: $("$python" --version) -> $venv (a few minutes; torch and tensorflow are large)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade pip
"$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
  --constraint constraints.txt --editable '.[all,dev]' | grep --line-buffered -E '^(Collecting|Installing|Successfully)' | cut -c1-100
"$venv/bin/python" -c 'import gpudemand'
touch "$stamp"
echo "setup: done"
