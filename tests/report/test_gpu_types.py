"""Capacity plans by GPU type, and their coherence with the total."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.planning.capacity.required import SHARES
from gpudemand.report.page.sentences import dates
from gpudemand.report.page.summary import gpu_types_sentence
from gpudemand.stages.gpu_types import ALL, check_installed, gpu_type_numbers, plan_gpu_types
from gpudemand.stages.requirement import plan_requirement
from gpudemand.stages.selection import select_and_forecast
from gpudemand.stages.sources.settings import Settings, parse_installed
from gpudemand.stages.sources.source import JobSource
from gpudemand.stages.usage_tables import MEAN, compute_usage_tables
from tests.report.conftest import make_log, renamed

REQUIRED = [f"required_{share}" for share in SHARES]


@pytest.fixture(scope="module")
def log():
    """The H100 are used twice as much as the A100."""
    log = make_log(days=60)
    return log.assign(gpus=log["gpus"] * (1 + log["gpu_type"].eq("H100")))


@pytest.fixture(scope="module")
def selected(log):
    return select_and_forecast(compute_usage_tables(JobSource.of(log, Settings(horizon=7))).total, 7)


def plan(log, selected, **changed):
    settings = Settings(horizon=7, lead_time="10D", **changed)
    requirement = plan_requirement(selected.forecast, 80.0, settings)
    return plan_gpu_types(JobSource.of(log, settings), selected, None, requirement, settings), requirement


def test_types_require_at_least_as_many_as_one_pool(log, selected):
    types, requirement = plan(log, selected)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100"]
    assert (table.loc[["H100", "A100"], REQUIRED].sum() >= table.loc[ALL, REQUIRED]).all()
    assert table.loc[ALL, "required"] == requirement.required
    assert (table[REQUIRED].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert 1.4 < table.loc["H100", "required_p50"] / table.loc["A100", "required_p50"] < 2.6


def test_means_of_types_sum_to_the_total(log, selected):
    settings = Settings(horizon=7, target_utilization=1.0)
    types, _ = plan(log, selected, target_utilization=1.0)
    steps = types.by_bin.groupby(["gpu_type", "ds"])["required_p50"].max().groupby("ds").sum()
    mean = selected.forecast[selected.forecast["unique_id"] == MEAN].set_index("ds")[selected.model]
    # The plan of the peaks is binding; both are rounded up to whole GPUs.
    assert (steps >= mean - 1e-9).all()
    assert len(steps) == settings.horizon


def test_shortfall_is_by_type_where_installed_is(log, selected):
    types, _ = plan(log, selected, installed={"A100": 1000.0, "H100": 5.0})
    table = types.table.set_index("gpu_type")
    assert table.loc["A100", "shortfall"] == 0
    assert pd.isna(table.loc["A100", "order_by"])
    assert table.loc["H100", "shortfall"] == table.loc["H100", "required"] - 5
    assert table.loc["H100", "first_crossing"] - table.loc["H100", "order_by"] == pd.Timedelta("10D")
    assert table.loc[ALL, "installed"] == 1005
    a100, h100 = (int(table.loc[name, "required"]) for name in ("A100", "H100"))
    text = f"H100 {h100} ({h100 - 5} short), A100 {a100}; {h100 + a100} in total; H100 runs short first, on "
    assert text in gpu_types_sentence(types.table, 0.95)
    assert f"H100 {h100} ({h100 - 5} short)" in gpu_types_sentence(
        types.table.assign(shortfall=types.table["shortfall"] - 0.3), 0.95
    )
    numbers = {"installed_from": "given", "first_crossing": None, "order_by": None, "service_level": 0.95}
    numbers |= {"lead_time": "10D", "log_end": "2026-03-02T00:00:00+00:00", **gpu_type_numbers(types)}
    assert "As one pool, required GPUs do not exceed the GPUs installed" in dates(numbers)
    assert "by GPU type, H100 runs short from " in dates(numbers)
    assert dates(numbers).endswith(": order now.")
    assert "Required GPUs do not exceed" in dates({**numbers, **gpu_type_numbers(None)})
    pool = {"first_crossing": "2026-04-02T00:00:00+00:00", "order_by": "2026-03-23T00:00:00+00:00"}
    assert "H100 alone runs short earlier, on " in dates({**numbers, **pool})


def test_retired_and_unused_types_are_listed(log, selected):
    installed = {"A100": 0, "H100": 1000.0, "B200": 32.0}
    check_installed(JobSource.of(log, Settings(installed=installed)))
    types, _ = plan(log, selected, installed=installed)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100", "B200"]
    assert table.loc["A100", "shortfall"] == table.loc["A100", "required"] > 0
    assert table.loc["A100", "first_crossing"] == selected.forecast["ds"].min()
    assert table.loc["B200", ["installed", "required", "shortfall"]].tolist() == [32, 0, 0]
    assert table["installed"].iloc[1:].sum() == table.loc[ALL, "installed"] == 1032


def test_installed_of_a_type_defaults_to_its_maximum_held(log, selected):
    types, _ = plan(log, selected)
    most = (
        compute_usage_tables(JobSource.of(log, Settings(horizon=7)))
        .tables["gpu_types"]
        .set_index("gpu_type")["gpus_peak"]
    )
    assert types.table.set_index("gpu_type").loc[most.index, "installed"].to_dict() == most.to_dict()


def test_shortfall_of_a_type_is_missing_where_only_the_sum_is_installed(log, selected):
    types, _ = plan(log, selected, installed=10.0)
    dependent = types.table.set_index("gpu_type")[["installed", "shortfall", "first_crossing", "order_by"]]
    assert dependent.drop(index=ALL).isna().all(axis=None)
    assert dependent.loc[ALL, "installed"] == 10
    assert "short" not in gpu_types_sentence(types.table, 0.95)


def test_a_missing_or_misspelt_type_is_named(log):
    with pytest.raises(InputError, match="installed has no number for 'H100'"):
        check_installed(JobSource.of(log, Settings(installed={"A100": 5})))
    with pytest.raises(InputError, match="'A100'"):
        check_installed(JobSource.of(log, Settings(installed={"A10O": 5, "H100": 5})))
    with pytest.raises(InputError, match=r"installed\['A100'\] must be a number of at least 0"):
        Settings(installed=parse_installed("A100=-3,H100=1"))
    with pytest.raises(InputError, match="write 96, or A100=64,H100=32"):
        parse_installed("A100:64")


def test_one_type_is_one_pool(log, selected):
    with pytest.raises(InputError, match="the plan is for one pool"):
        plan(renamed(log, gpu_type="H100"), selected)
