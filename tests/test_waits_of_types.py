"""Waits beside idle GPUs, where a log names several types."""

from __future__ import annotations

import pandas as pd
import pytest

import gpudemand as gd


@pytest.fixture(scope="module")
def jobs():
    """Every day four H100 are held for two hours; four A100, wanted after one, start when these are free."""
    days = pd.date_range("2026-03-01", periods=40, tz="UTC")
    hour = pd.Timedelta("1h")
    first = pd.DataFrame({"user": "ada", "submit": days, "start": days, "end": days + 2 * hour, "gpu_type": "H100"})
    second = pd.DataFrame({"user": "bob", "submit": days + hour, "start": days + 2 * hour, "gpu_type": "A100"})
    table = pd.concat([first, second.assign(end=days + 4 * hour)])
    return table.sort_values("submit", ignore_index=True).assign(gpus=4.0, status="completed")


@pytest.mark.parametrize(("installed", "share"), [(4, 0.0), (8, 1.0), ({"A100": 4, "H100": 4}, 1.0)])
def test_types_that_held_more_than_there_is_are_no_pools_of_their_own(jobs, installed, share):
    assert gd.Study(jobs, installed=installed).wait_tables.beside_idle == pytest.approx(share)
