#!/usr/bin/env bash
# modern.sh: build a wheel, install it with the newest numpy, pandas and scikit-learn (and none of giotto-tda, torch,
# tensorflow) into an empty environment, and run the tests of the core from there.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-modern
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=${PYTHON:-}
for candidate in python3.13 python3.12 python3.11 python3; do
  [ -n "$python" ] || ! command -v "$candidate" >/dev/null 2>&1 || ! "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || { echo "modern: Python 3.11 or newer is needed." >&2; exit 1; }

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade pip
"$venv/bin/python" -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir "$work" .
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --force-reinstall --no-deps "$work"/gpudemand-*.whl
"$venv/bin/python" -m pip install --disable-pip-version-check --quiet --upgrade "$(ls "$work"/gpudemand-*.whl)[test]"
"$venv/bin/python" - <<'PY'
import importlib.util
import numpy, pandas, sklearn
print("modern: numpy", numpy.__version__, "pandas", pandas.__version__, "scikit-learn", sklearn.__version__)
for name in ("torch", "tensorflow", "gtda"):
    assert importlib.util.find_spec(name) is None, f"{name} must not be here"
PY
# From another folder, so that the installed package is tested and not the checkout.
checkout=$PWD
cp -r tests pyproject.toml "$work/"
cd "$work"
GPUDEMAND_SHARED_DATA="${GPUDEMAND_SHARED_DATA:-$checkout/../shared/data}" GPUDEMAND_CHECKOUT="$checkout" \
  "$checkout/$venv/bin/python" -m pytest -q -n 2 -p no:cacheprovider tests "$@"
