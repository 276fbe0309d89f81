"""The bundled table of public runs of large models: every row is one; and how the benchmark holds projects out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.datasets.registry import bundled_path

llm_load = pytest.importorskip("benchmarks.cost.llm_load", reason="runs from a checkout")


@pytest.fixture(scope="module")
def rows():
    return llm_load.read_runs(bundled_path("cost/public_runs.csv"))


def test_nearly_every_row_is_a_run_with_a_time_a_memory_or_none_for_want_of_it(rows):
    table = pd.read_csv(bundled_path("cost/public_runs.csv"))
    measured = table[["tokens_per_s_per_gpu", "step_time_s", "memory_gib"]].notna().any(axis=1)
    assert (measured | table["status"].eq("oom")).all()
    assert table["source"].nunique() >= 19
    assert len(rows) > 0.9 * len(table)
    assert rows["seconds_per_token"].notna().sum() > 850
    assert rows["class"].eq("experts").sum() > 150
    assert rows["vendor"].eq("AMD").sum() >= 5


def test_a_printed_power_limit_and_memory_are_those_of_the_device(rows):
    limited = next(run for run in rows["run"] if run.job.hardware.tdp_w == 500)
    assert limited.job.hardware.memory_gib == 96
    assert limited.job.hardware.peak("bf16") == pytest.approx(0.8 * 989.4e12, rel=0.01)


def test_what_a_row_does_not_state_stays_unknown_and_releases_stay_apart():
    columns = pd.read_csv(bundled_path("cost/public_runs.csv"), nrows=0).columns
    about = {"source": "NVIDIA/NeMo", "model": "mixtral-8x7b", "seq_len": 4096, "gpu": "H100", "n_gpus": 64}
    about |= {"micro_batch": 1, "global_batch": 256, "tensor_parallel": 1, "pipeline_parallel": 4, "status": "ok"}
    releases = [{"container_or_version": f"{one} NeMo Container"} for one in ("25.09", "26.02")]
    table = pd.DataFrame([{**about, **one, "method": "pretrain"} for one in releases])
    table = table.reindex(columns=[*columns, "container_or_version"]).assign(tokens_per_s_per_gpu=[4000.0, 6000.0])
    found = llm_load.runs_of(table)
    assert [run.layout.expert for run in found["run"]] == [None, None]
    assert [run.layout.virtual_pipeline for run in found["run"]] == [None, None]
    assert np.ptp([run.job.stack_year for run in found["run"]]) == pytest.approx(5 / 12)
