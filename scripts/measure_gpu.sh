#!/usr/bin/env bash
# measure_gpu.sh OUT [MINUTES]: what a machine with a CUDA GPU is to measure for data/cost, in calls of MINUTES (9) that go
# on where the last one stopped: kernels that 20 networks launch, decoder blocks, single operators, profiled steps (half
# of the time left), then the random design data/cost/plans/cuda.csv. PYTHON is an interpreter that has torch, pandas,
# scipy and scikit-learn; nothing is installed. Afterwards: python -m benchmarks.cost.on_gpu compare decoders --out OUT/decoders.csv --device H200
set -eu
cd "$(dirname "$0")/.."
out=${1:?where the rows go}
end=$(($(date +%s) + 60 * ${2:-9}))
python=${PYTHON:-python3}
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
left() { echo $((end - $(date +%s))); }
mkdir -p "$out"
for what in kernels decoders operators; do
  [ "$(left)" -gt 10 ] || exit 0
  # An error of the device ends a process: the next one begins with the rows that are left.
  for _ in 1 2 3; do
    "$python" -m benchmarks.cost.on_gpu measure "$what" --out "$out/$what.csv" --minutes "$(($(left) / 60))" && break
  done
done
[ "$(left)" -gt 10 ] || exit 0
# Needs timm, torchvision and transformers; without them, what it does not have are rows with the status error.
"$python" -m benchmarks.cost.on_gpu.profiles steps --out "$out/steps.csv" --minutes "$(($(left) / 120))" || true
[ "$(left)" -gt 10 ] || exit 0
timeout --signal=INT "$(left)" "$python" -m benchmarks.measure data/cost/plans/cuda.csv --out "$out/cuda.csv" --process shared ||
  [ $? -eq 124 ]
