"""Jobs that would fit on fewer GPUs: measured memory by hand, and descriptions through the predictor."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.planning import fewer_gpus

START = pd.Timestamp("2026-03-01", tz="UTC")


def log(**columns):
    size = len(next(iter(columns.values())))
    about = {"job_id": [str(place) for place in range(size)], "user": "ada", "gpu_type": "A100", "start": START}
    return pd.DataFrame({**about, "end": START + pd.Timedelta("2h"), **columns}, index=range(size))


def test_measured_memory_is_divided_over_the_fewest_gpus():
    # 40 GB: 36 GiB and more are usable at nine tenths of each GPU.
    table = fewer_gpus(log(gpus=[8.0, 8.0, 4.0, 1.0], memory_gib=[4.0, 39.0, 17.0, 1.0]))
    assert table["job_id"].tolist() == ["0", "2"]
    assert table["fewest_gpus"].tolist() == [1, 2]
    assert table["slower"].tolist() == [8.0, 2.0]
    assert table["memory_gib"].tolist() == [32.0, 34.0]
    assert table["gpu_hours"].tolist() == [16.0, 8.0]
    assert set(table["basis"]) == {"measured"}


def test_less_memory_for_jobs_needs_more_gpus():
    counts = [
        fewer_gpus(log(gpus=[8.0], memory_gib=[9.0]), memory_share=share)["fewest_gpus"].iloc[0]
        for share in (0.5, 0.95)
    ]
    assert counts[0] > counts[1]


def test_described_jobs_take_the_fewest_gpus_on_which_they_are_predicted_to_fit():
    adapter = TrainingJob.from_config("llama-3-8b", 2048, device="H100", optimizer="adamw", micro_batch=1)
    rows = log(gpus=[64.0, 64.0, 2.0], network=["llama", "unknown", "llama"], gpu_type="H100")
    table = fewer_gpus(rows, {"llama": adapter})
    assert table["job_id"].tolist() == ["0"]
    found = table.iloc[0]
    assert found["basis"] == "predicted"
    assert 2 <= found["fewest_gpus"] <= 16
    assert found["memory_gib"] < 80
    assert found["slower"] > 2


def test_a_measurement_counts_before_a_description():
    job = TrainingJob.from_config("llama-3-70b", 2048, device="H100", optimizer="adamw")
    rows = log(gpus=[16.0], network=["llama"], gpu_type="H100", memory_gib=[8.0])
    assert fewer_gpus(rows, {"llama": job}, predictor=LargeModelPredictor())["fewest_gpus"].tolist() == [2]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({}, {}, "neither memory_gib nor a network"),
        ({"network": ["llama"]}, {}, "neither memory_gib nor a network"),
        ({"memory_gib": [8.0], "gpu_type": "A1000000"}, {}, "A1000000"),
        ({"memory_gib": [8.0]}, {"memory_share": 1.5}, "memory_share"),
    ],
)
def test_what_is_missing_is_said(columns, options, reason):
    with pytest.raises(InputError, match=reason):
        fewer_gpus(log(gpus=[2.0], **columns), **options)


def test_a_log_of_single_gpus_has_no_such_job():
    assert fewer_gpus(log(gpus=[1.0, 1.0], memory_gib=[1.0, 2.0])).empty
