"""Repetitions are replaced by their median before the cost model is fitted."""

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import load_measurements

refit_cost_model = pytest.importorskip("scripts.refit_cost_model", reason="runs from a checkout")
measured_jobs, median_of_repetitions = refit_cost_model.measured_jobs, refit_cost_model.median_of_repetitions


@pytest.fixture(scope="module")
def rows():
    return load_measurements()


def test_repetitions_become_their_median(rows):
    key = rows.loc[rows["repeat"] > 0, "key"].iloc[0]
    about = [name for name in rows.columns[1:16] if name not in ("repeat", "seed")]
    same = rows.merge(rows.loc[rows["key"] == key, about], on=about)
    assert len(same) > 1
    one = median_of_repetitions(same)
    assert len(one) == 1
    assert one["step_time_s"].iloc[0] == pytest.approx(same["step_time_s"].median())
    assert one["memory_gib"].iloc[0] == pytest.approx(same["memory_gib"].median())


def test_a_job_without_its_first_repetition_is_kept(rows):
    later = rows[rows["repeat"] > 0]
    assert len(median_of_repetitions(later)) == len(later)


def test_failed_measurements_are_dropped(rows):
    few = rows.head(4).copy()
    few.loc[few.index[0], "status"] = "out of memory"
    assert few["key"].iloc[0] not in set(median_of_repetitions(few)["key"])


def test_an_architecture_without_a_graph_is_named(rows):
    with pytest.raises(InputError, match="as measured; trace the rows first"):
        measured_jobs(rows.head(1), {})


def test_order_of_the_rows_does_not_matter(rows):
    few = rows.sample(60, random_state=0)
    pd.testing.assert_frame_equal(median_of_repetitions(few), median_of_repetitions(few.iloc[::-1]))
