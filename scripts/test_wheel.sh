#!/usr/bin/env bash
# test_wheel.sh modern|giotto [PYTEST ARGUMENTS]: build a wheel, install it into an empty environment, run the tests of
# the core from there, without the slow ones. modern: the newest numpy, pandas and scikit-learn, without giotto-tda,
# torch and tensorflow. giotto: giotto-tda from an index, with the versions that it pins.
set -eu
cd "$(dirname "$0")/.."
set_=$1
shift
checkout=$PWD
venv=$checkout/.venv-$set_
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $set_ in
  modern) extra=test candidates="python3.14 python3.13 python3.12 python3.11 python3" ;;
  giotto) extra=test,giotto candidates="python3.12 python3.11 python3" ;;
  *) echo "test_wheel: modern or giotto, not $set_." >&2; exit 2 ;;
esac
python=${PYTHON:-}
for candidate in $candidates; do
  [ -n "$python" ] || ! command -v "$candidate" >/dev/null 2>&1 || ! "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || { echo "test_wheel: Python 3.11 or newer is needed." >&2; exit 1; }

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
"${pip[@]}" wheel --no-deps --wheel-dir "$work" .
wheel=$(ls "$work"/gpudemand-*.whl)
# From another folder: neither the checkout's own code nor its settings for uv are meant here.
cp -r tests conftest.py pyproject.toml "$work/"
cd "$work"
sed -i.bak '/^\[tool.uv\]/,$d' pyproject.toml
if "${pip[@]}" install uv 2>/dev/null; then
  eval "$("$venv/bin/python" "$checkout/scripts/uv_settings.py")"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --upgrade --reinstall-package gpudemand "$wheel[$extra]"
else
  "${pip[@]}" install --force-reinstall --no-deps "$wheel"
  "${pip[@]}" install --upgrade "$wheel[$extra]"
fi
EXPECTED=$set_ "$venv/bin/python" - <<'PY'
import importlib.util, os
import numpy, pandas, scipy, sklearn
print(os.environ["EXPECTED"] + ": numpy", numpy.__version__, "scipy", scipy.__version__, "pandas", pandas.__version__,
      "scikit-learn", sklearn.__version__)
for name in ("torch", "tensorflow"):
    assert importlib.util.find_spec(name) is None, f"{name} must not be here"
assert (importlib.util.find_spec("gtda") is not None) == (os.environ["EXPECTED"] == "giotto")
PY
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
GPUDEMAND_SHARED_DATA="${GPUDEMAND_SHARED_DATA:-$checkout/../shared/data}" GPUDEMAND_CHECKOUT="$checkout" \
  "$venv/bin/python" -m pytest -q -n 2 --dist worksteal -p no:cacheprovider -m "not slow" tests "$@"
