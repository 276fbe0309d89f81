"""Six networks trained on this machine: median error before and after calibration, beside the noise of the machine.

    python -m benchmarks.cost.here [--out FILE] [--repeats 5] [--on cpu]

Each network is predicted after a calibration on the other five. With ``--out``, rows are kept in that CSV file, and a
run that was stopped goes on. Repetitions are spread over the run, so that drifts count as noise. A processor that the
table of devices lacks is measured, and saved for the next time.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import pandas as pd

from benchmarks.measure.graphs import measured_jobs, trace_graphs
from benchmarks.measure.runs import measure_training_cost
from gpudemand._array import FloatArray
from gpudemand.cost import TrainingJob, noise_floor
from gpudemand.cost.calibrate import calibrate_device, find_or_measure, format_calibration
from gpudemand.cost.model import CostModel
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets.devices import save_device

#: Inputs of images and of tokens; networks: residual, plain, depthwise, dense, mixed branches, a small transformer.
_IMAGES, _TOKENS = {"channels": 3, "vocabulary": 0}, {"channels": 0, "vocabulary": 5000}
NETWORKS = {
    **dict.fromkeys(("resnet18", "vgg11", "mobilenet_v2", "densenet121", "googlenet"), _IMAGES),
    "gpt": _TOKENS,
}
_PIXELS = 64  # or tokens
_BATCH = {"cpu": 16, "cuda": 128}


def plan(repeats: int, device: str = "cpu") -> pd.DataFrame:
    """Jobs to measure, each as often as asked."""
    about = {"framework": "torch", "input_size": _PIXELS, "batch_size": _BATCH[device], "device": device}
    jobs = [{**about, "network": name, **inputs} for name, inputs in NETWORKS.items()]
    return pd.DataFrame([{**job, "repeat": repeat} for repeat in range(repeats) for job in jobs])


def measured(rows: pd.DataFrame) -> tuple[list[TrainingJob], FloatArray]:
    """Jobs of rows, and seconds a step of all their repetitions, shape (n_repeats, n_jobs)."""
    seconds = rows.pivot_table("step_time_s", "repeat", "network", sort=False).dropna()
    first = rows.drop_duplicates("network")
    return measured_jobs(first, trace_graphs(first)), seconds[first["network"].tolist()].to_numpy()


def main() -> None:
    """Measure, calibrate, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="CSV file that keeps the rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--on", choices=tuple(_BATCH), default="cpu")
    options = parser.parse_args()
    own, measured_now = find_or_measure(options.on)
    if measured_now:
        save_device(own)
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "rows.csv"
        jobs = plan(options.repeats, options.on)
        rows = measure_training_cost(jobs, out, process="shared")
    noise = noise_floor(rows, ("step_time_s",))
    print("noise of repetitions:\n", noise.to_string(index=False, float_format="{:.3f}".format), sep="")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarFromTrainingWarning)
        print(format_calibration(calibrate_device(CostModel.load(), *measured(rows.assign(device_name=own.name)))))


if __name__ == "__main__":
    main()
