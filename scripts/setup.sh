#!/usr/bin/env bash
# setup.sh [core|docs|all]: make .venv with what the command at hand needs; does nothing where that is there already.
# core: gpudemand alone, enough for `make report`. docs: also Sphinx. all: also torch, tensorflow, giotto-tda, JupyterLab
# and the tools.
# PYTHON=/path/to/python3.12 chooses an interpreter, VENV=folder another place.
set -eu
cd "$(dirname "$0")/.."
set_=${1:-all}
venv=${VENV:-.venv}

fresh() {
  for file in pyproject.toml constraints.txt requirements.txt; do [ "$venv/.$1" -nt "$file" ] || return 1; done
}
if fresh all || fresh "$set_" || { [ "$set_" = core ] && fresh docs; }; then exit 0; fi

supported() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }

if [ -n "${PYTHON:-}" ]; then
  supported "$PYTHON" || { echo "setup: PYTHON=$PYTHON is no Python 3.11 to 3.14 that can make a virtual environment." >&2; exit 1; }
  python=$PYTHON
else
  python=
  for candidate in python3.12 python3.11 python3.13 python3.14 python3 python; do
    if command -v "$candidate" >/dev/null 2>&1 && supported "$candidate"; then python=$candidate; break; fi
  done
fi
if [ -z "$python" ]; then
  found=$(python3 --version 2>/dev/null || echo "no Python")
  cat >&2 <<TXT
setup: Python 3.11 to 3.14 is needed; found $found.
       Debian/Ubuntu:  apt-get install python3.11 python3.11-venv
       macOS:          brew install python@3.12
       anywhere:       https://www.python.org/downloads/
       Or say where it is:  make report PYTHON=/path/to/python3.12
TXT
  exit 1
fi

case $set_ in
  core) what="gpudemand alone" extras= ;;
  docs) what="gpudemand and Sphinx" extras="[docs]" ;;
  all) what="everything; torch and tensorflow are large" ;;
  *) echo "setup: $set_ is not core, docs or all." >&2; exit 1 ;;
esac
echo "setup: $("$python" --version) -> $venv ($what)"
giotto=giotto-tda
if [ "$set_" = all ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
  giotto=
  echo "setup: without giotto-tda and giotto-ph, which have no wheels for this Python; what needs them is skipped"
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
bin="$venv/bin"
pip=("$bin/python" -m pip --disable-pip-version-check --quiet)

# uv resolves and installs in seconds, and can set giotto-tda's stale pin of scikit-learn aside (see pyproject.toml).
uv=$(command -v uv || true)
if [ -z "$uv" ] && "${pip[@]}" install uv 2>/dev/null; then uv="$bin/uv"; fi
if [ -n "$uv" ]; then
  eval "$("$bin/python" scripts/uv_settings.py)"
  install=("$uv" pip install --quiet --python "$bin/python")
else
  echo "setup: uv cannot be had here, so pip does the same, in minutes instead of seconds"
  install=("${pip[@]}" install)
fi
if [ "$set_" = core ]; then
  # What has a hash cannot be installed together with a folder, which has none.
  "${install[@]}" --require-hashes --requirement requirements.txt
  "${install[@]}" --no-deps --no-build-isolation --editable .
elif [ "$set_" = docs ]; then
  "${install[@]}" --constraint constraints.txt --editable ".$extras"
elif [ -n "$uv" ]; then
  "${install[@]}" --constraint constraints.txt --editable '.[all,dev]' $giotto
else
  # pip cannot override a pin: everything else first, then giotto-tda as it is, with what else it needs.
  "${install[@]}" --constraint constraints.txt --editable '.[all,dev]' ${giotto:+igraph plotly pyflagser}
  [ -z "$giotto" ] || "${install[@]}" --constraint constraints.txt --no-deps giotto-tda
fi
"$bin/python" -c 'import gpudemand'
touch "$venv/.$set_"
echo "setup: done"
