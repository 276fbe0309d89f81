"""The bundled table of whole trainings: every row is one, from a named document, and the track reads it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from gpudemand.cost import large_candidates
from gpudemand.datasets.registry import bundled_path

trainings = pytest.importorskip("benchmarks.cost.trainings", reason="runs from a checkout")


@pytest.fixture(scope="module")
def rows():
    return trainings.read_trainings()


def test_the_table_is_whole(rows):
    assert len(rows) > 75
    assert rows["source"].nunique() >= 25
    assert rows[["source", "printed_in", "stated", "model", "tokens", "gpu", "precision"]].notna().all().all()
    assert rows["printed_in"].str.contains("/").all()
    assert set(rows["seen"]) == {"own", "quoted"}
    assert set(rows["class"]) == {"dense", "encoder", "experts", "tuning"}
    assert not rows.duplicated(["source", "model", "class", "tokens", "gpu"]).any()


def test_hours_are_days_on_gpus_where_those_are_stated(rows):
    timed = rows[rows["days"].notna()]
    assert timed["n_gpus"].notna().all()
    np.testing.assert_allclose(timed["gpu_hours"], timed["n_gpus"] * timed["days"] * 24, rtol=1e-3)


def test_other_hours_are_as_printed(rows):
    stated = rows[rows["days"].isna()].set_index("gpu_hours")["stated"]
    units = {"k": 1e3, "K": 1e3, "m": 1e6, "M": 1e6, "million": 1e6, "": 1.0}
    for hours, text in stated.items():
        number, unit = re.search(r"([\d.,]+) ?(k|K|million|m|M|)\b", text).groups()
        assert float(number.replace(",", "")) * units[unit] == pytest.approx(hours)


def test_sizes_are_those_that_the_project_states(rows):
    billions = np.array([job.run.model.n_active_parameters for job in rows["job"]]) / 1e9
    np.testing.assert_allclose(billions, rows["parameters_b"], rtol=0.12)


def test_no_training_is_faster_than_the_peak_or_idle(rows):
    share = trainings.ideal_hours(rows, 1.0)["predicted"] / rows["gpu_hours"]
    assert share.between(0.01, 0.7).all()


def test_halves_share_no_project_and_both_have_experts(rows):
    by = rows.groupby("half")
    assert not set.intersection(*(set(part["source"]) for _, part in by))
    assert by["class"].apply(lambda part: part.eq("experts").sum()).min() >= 3


def test_the_project_whose_step_is_in_the_training_set_is_left_out(rows):
    assert not rows["model"].str.contains("tinyllama").any()


def test_a_report_compares_with_the_ideal(rows, capsys):
    few = rows[rows["source"].isin(["HuggingFaceTB", "jetmoe", "karpathy", "nvidia"])].reset_index(drop=True)
    trainings.report("development", few, 0.25, set())
    shown = capsys.readouterr().out
    assert f"{len(few)} trainings of 4 projects" in shown
    assert "6 N D, MFU 0.25" in shown
    assert "not fitted to" in shown
    out = trainings.ideal_hours(few, 0.25)
    assert f"{(out['predicted'] / out['y'] - 1.0).abs().median():.3f}" in shown


def test_the_best_share_leaves_the_least_median_error(rows):
    part = rows[rows["source"] == "HuggingFaceTB"]
    best = trainings.best_share(part)

    def error(share):
        out = trainings.ideal_hours(part, share)
        return (out["predicted"] / out["y"] - 1.0).abs().median()

    assert error(best) <= min(error(share) for share in (0.1, 0.2, 0.3, 0.4))


def test_usual_batches_are_those_of_the_table(rows):
    assumed = (large_candidates.BATCH_TOKENS, large_candidates.BATCH_POWER, large_candidates.BATCH_DOUBLINGS)
    assert trainings.usual_batch(rows) == pytest.approx(assumed, rel=0.01)


def test_usual_batches_weigh_projects_alike_and_hold_them_out():
    """Two projects on the line of 2 ** 10 tokens a GPU, one of many rows, and one that takes twice as much."""
    gpus = [1, 4, 16] + [1, 4, 16] * 10 + [4]
    table = pd.DataFrame({"source": ["a"] * 3 + ["b"] * 30 + ["c"], "n_gpus": gpus, "seq_len": 1024})
    table["global_batch"] = table["n_gpus"] * np.where(table["source"] == "c", 2, 1)
    one, power, doublings = trainings.usual_batch(table)
    assert (one, power) == pytest.approx((1024 * 2 ** (1 / 3), 1.0))
    assert doublings == pytest.approx(np.sqrt((1.0 + 0.5**2 + 0.5**2) / 3))


def test_the_table_reads_without_the_benchmark():
    table = pd.read_csv(bundled_path("cost/trainings.csv"))
    assert (table["tokens"] > 1e9).all()
    assert (table["gpu_hours"] > 1).all()
