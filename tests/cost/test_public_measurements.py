"""What is known of jobs in public measurements, and what the bundled models say that they were trained on."""

import numpy as np
import pandas as pd
import pytest

bundle = pytest.importorskip("benchmarks.cost.bundle", reason="runs from a checkout")
memory = pytest.importorskip("benchmarks.cost.memory", reason="runs from a checkout")


def test_jobs_that_broke_off_are_known_to_fit_only_where_that_follows():
    """Three ran on the card of 40 GB, two ran out of its memory, one broke off for another reason."""
    jobs = pd.DataFrame({
        "fits": [1.0, 1.0, 1.0, 0.0, 0.0, np.nan],
        "memory_gib": [10.0, 23.9, 36.0, 37.5, 37.5, 5.0],
        "fake_tensor_gib": [4.0, 12.0, 20.0, 30.0, 90.0, 3.0],
    })  # fmt: skip
    found = {name: memory._fits(jobs, limit) for name, limit in memory._LIMITS.items()}
    np.testing.assert_array_equal(found["24 GB"], [1, 1, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(found["40 GB"], [1, 1, 1, 0, 0, np.nan])
    np.testing.assert_array_equal(found["80 GB"], [1, 1, 1, np.nan, 0, np.nan])


def test_a_refit_of_one_model_keeps_the_jobs_of_the_other():
    before = {"jobs": 9, "jobs_by_target": {"step_time_s": 5, "memory_gib": 4}, "devices": ["A", "B"]}
    table = pd.DataFrame({"device_name": ["B", "C"]})
    one = bundle.fitted_on(before, {"memory_gib": table})
    assert (one["jobs"], one["jobs_by_target"]) == (7, {"step_time_s": 5, "memory_gib": 2})
    assert one["devices"] == ["A", "B", "C"]
    assert bundle.fitted_on(before, {"memory_gib": table, "step_time_s": table})["devices"] == ["B", "C"]
