"""A plan for each type of GPU, under that of the total."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.planning.capacity.plan import SHARES
from gpudemand.report.analysis.gpu_types import ALL, check_installed, plan_types, types_numbers
from gpudemand.report.analysis.requirement import plan_need
from gpudemand.report.analysis.selection import look_ahead
from gpudemand.report.analysis.settings import Settings, read_installed
from gpudemand.report.analysis.usage import MEAN, measure
from gpudemand.report.page.sentences import timing
from gpudemand.report.page.summary import which
from tests.report.conftest import make_log, renamed

REQUIRED = [f"required_{share}" for share in SHARES]


@pytest.fixture(scope="module")
def log():
    """The H100 are used twice as much as the A100."""
    log = make_log(days=60)
    return log.assign(gpus=log["gpus"] * (1 + log["gpu_type"].eq("H100")))


@pytest.fixture(scope="module")
def ahead(log):
    return look_ahead(measure(log, Settings(horizon=7)).total, 7)


def plan(log, ahead, **changed):
    settings = Settings(horizon=7, lead_time="10D", **changed)
    need = plan_need(ahead.forecast, 80.0, settings)
    return plan_types(log, ahead, None, need, settings), need


def test_types_together_require_at_least_one_pool_of_all(log, ahead):
    types, need = plan(log, ahead)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100"]
    assert (table.loc[["H100", "A100"], REQUIRED].sum() >= table.loc[ALL, REQUIRED]).all()
    assert table.loc[ALL, "required"] == need.required
    assert (table[REQUIRED].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert 1.4 < table.loc["H100", "required_p50"] / table.loc["A100", "required_p50"] < 2.6


def test_means_of_types_add_up_to_that_of_the_total(log, ahead):
    settings = Settings(horizon=7, target_utilization=1.0)
    types, _ = plan(log, ahead, target_utilization=1.0)
    steps = types.steps.groupby(["gpu_type", "ds"])["required_p50"].max().groupby("ds").sum()
    mean = ahead.forecast[ahead.forecast["unique_id"] == MEAN].set_index("ds")[ahead.model]
    # Peaks decide here, and they are higher; both are rounded up to whole GPUs.
    assert (steps >= mean - 1e-9).all()
    assert len(steps) == settings.horizon


def test_what_is_installed_by_type_decides_which_runs_short(log, ahead):
    types, _ = plan(log, ahead, installed={"A100": 1000.0, "H100": 5.0})
    table = types.table.set_index("gpu_type")
    assert table.loc["A100", "shortfall"] == 0
    assert pd.isna(table.loc["A100", "order_by"])
    assert table.loc["H100", "shortfall"] == table.loc["H100", "required"] - 5
    assert table.loc["H100", "first_crossing"] - table.loc["H100", "order_by"] == pd.Timedelta("10D")
    assert table.loc[ALL, "installed"] == 1005
    a100, h100 = (int(table.loc[name, "required"]) for name in ("A100", "H100"))
    said = f"H100 {h100} ({h100 - 5} short), A100 {a100}; together {h100 + a100}; H100 runs short first, on "
    assert said in which(types.table, 0.95)
    assert f"H100 {h100} ({h100 - 5} short)" in which(
        types.table.assign(shortfall=types.table["shortfall"] - 0.3), 0.95
    )
    told = {"installed_from": "given", "first_crossing": None, "order_by": None, "service_level": 0.95}
    told |= {"lead_time": "10D", "log_end": "2026-03-02T00:00:00+00:00", **types_numbers(types)}
    assert "As one pool the installed GPUs suffice" in timing(told)
    assert "type by type they do not: H100 runs short from " in timing(told)
    assert timing(told).endswith("before the log ends: order now.")
    assert "suffice throughout" in timing({**told, **types_numbers(None)})
    pool = {"first_crossing": "2026-04-02T00:00:00+00:00", "order_by": "2026-03-23T00:00:00+00:00"}
    assert "H100 by itself runs short earlier, on " in timing({**told, **pool})


def test_types_that_are_gone_or_never_used(log, ahead):
    installed = {"A100": 0, "H100": 1000.0, "B200": 32.0}
    check_installed(log, Settings(installed=installed))
    types, _ = plan(log, ahead, installed=installed)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100", "B200"]
    assert table.loc["A100", "shortfall"] == table.loc["A100", "required"] > 0
    assert table.loc["A100", "first_crossing"] == ahead.forecast["ds"].min()
    assert table.loc["B200", ["installed", "required", "shortfall"]].tolist() == [32, 0, 0]
    assert table["installed"].iloc[1:].sum() == table.loc[ALL, "installed"] == 1032


def test_without_a_number_each_type_is_compared_with_the_most_that_was_held(log, ahead):
    types, _ = plan(log, ahead)
    most = measure(log, Settings(horizon=7)).tables["gpu_types"].set_index("gpu_type")["gpus_peak"]
    assert types.table.set_index("gpu_type").loc[most.index, "installed"].to_dict() == most.to_dict()


def test_one_number_for_all_types_says_nothing_of_each(log, ahead):
    types, _ = plan(log, ahead, installed=10.0)
    hanging = types.table.set_index("gpu_type")[["installed", "shortfall", "first_crossing", "order_by"]]
    assert hanging.drop(index=ALL).isna().all(axis=None)
    assert hanging.loc[ALL, "installed"] == 10
    assert "short" not in which(types.table, 0.95)


def test_a_type_left_out_or_mistyped_is_named(log):
    with pytest.raises(InputError, match="installed says nothing about 'H100'"):
        check_installed(log, Settings(installed={"A100": 5}))
    with pytest.raises(InputError, match="'A100'"):
        check_installed(log, Settings(installed={"A10O": 5, "H100": 5}))
    with pytest.raises(InputError, match=r"installed\['A100'\] must be a number of at least 0"):
        Settings(installed=read_installed("A100=-3,H100=1"))
    with pytest.raises(InputError, match="write 96, or A100=64,H100=32"):
        read_installed("A100:64")


def test_one_type_is_one_pool(log, ahead):
    with pytest.raises(InputError, match="the plan is for one pool"):
        plan(renamed(log, gpu_type="H100"), ahead)
