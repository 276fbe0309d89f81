"""Make the bundled sample again: ``python -m scripts.make_sample``, in a checkout."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gpudemand.datasets.registry import data_folder
from gpudemand.datasets.simulate import make_cluster
from scripts.checksums import refresh_checksums


def make_sample() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate jobs and ground truth of the bundled sample.

    Returns
    -------
    jobs, truth : DataFrame
        As from `load_jobs_sample` and `load_truth_sample`.
    """
    return make_cluster(n_users=120, n_days=270, gpus_per_user=2.6, start="2025-10-06", random_state=8)


def write_sample(folder: Path) -> None:
    """Write ``sample/jobs.parquet`` and ``sample/truth.parquet`` and their checksums in ``registry.json``.

    Parameters
    ----------
    folder : Path
        The data folder of a checkout.
    """
    jobs, truth = make_sample()
    _write(jobs.dropna(axis=1, how="all").astype({"job_id": "int64"}), folder / "sample" / "jobs.parquet")
    _write(truth, folder / "sample" / "truth.parquet")
    refresh_checksums(folder, "sample/")


def _write(frame: pd.DataFrame, path: Path) -> None:
    """Write compact Parquet: times in milliseconds, dictionaries for repeated values."""
    times = frame.select_dtypes("datetimetz").columns
    repeating = [name for name in frame.columns if frame[name].nunique() < 1000 and name not in times]
    frame = frame.assign(**{name: frame[name].dt.as_unit("ms") for name in times})
    frame.to_parquet(path, index=False, compression="zstd", compression_level=19, use_dictionary=repeating)


if __name__ == "__main__":
    write_sample(data_folder())
