"""The bundled table of public runs of large models: every row is one, and its halves share no project."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand.datasets.registry import bundled_path

public_runs = pytest.importorskip("benchmarks.cost.public_runs", reason="runs from a checkout")


@pytest.fixture(scope="module")
def rows():
    return public_runs.split_public_runs()


def test_nearly_every_row_is_a_run_with_a_time_a_memory_or_none_for_want_of_it(rows):
    table = pd.read_csv(bundled_path("cost/public_runs.csv"))
    measured = table[["tokens_per_s_per_gpu", "step_time_s", "memory_gib"]].notna().any(axis=1)
    assert (measured | table["status"].eq("oom")).all()
    assert table["source"].nunique() >= 18
    assert len(rows) > 0.9 * len(table)
    assert rows["seconds_per_token"].notna().sum() > 850
    assert rows["class"].eq("experts").sum() > 150


def test_halves_share_no_project_and_both_have_experts(rows):
    by = rows.groupby("half")
    development, scoring = (set(by.get_group(half)["source"]) for half in public_runs.HALVES)
    assert not development & scoring
    assert by["class"].apply(lambda part: part.eq("experts").sum()).min() > 50


def test_no_project_is_in_the_table_that_the_predictor_was_first_fitted_to(rows):
    from gpudemand.cost.measure import load_held_out_runs

    assert not set(rows["source"]) & set(load_held_out_runs()["source"])


def test_a_report_of_one_half_compares_with_the_ideal(capsys):
    public_runs.main(["--half", "scoring"])
    shown = capsys.readouterr().out
    assert "scoring: " in shown
    assert "6 N D, MFU by GPU" in shown
    assert "development" not in shown
