"""Error messages of argument checks, and parsing and formatting of units."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpudemand as gd
from gpudemand._validation import InputError, check_choice, check_columns, check_number, check_seed, shorten
from gpudemand.cost.feature_table import listed_jobs
from gpudemand.units import format_count, format_gib, format_seconds, parse_duration, parse_slurm_seconds


@pytest.mark.parametrize("value", ["3", None, True, math.nan, math.inf, [1], 1e400])
def test_not_a_number(value):
    with pytest.raises(InputError, match="must be a number of at least 0 and at most 5; got"):
        check_number("x", value, 0, 5)


@pytest.mark.parametrize("value", [0, 5, np.float32(2.5), np.int64(3)])
def test_a_number_in_range(value):
    assert check_number("x", value, 0, 5) == float(value)


@pytest.mark.parametrize("made", [np.random.default_rng, np.random.RandomState])
def test_generators_draw_a_seed_as_in_scikit_learn(made):
    state = made(0)
    first, second = check_seed(state), check_seed(state)
    assert first == check_seed(made(0)) != second
    assert check_seed(None) != check_seed(None)
    assert check_seed(np.int64(7)) == 7


def test_the_nearest_name_is_suggested():
    with pytest.raises(InputError, match="Did you mean 'sacct'"):
        check_choice("format", "Sact", ["sacct", "swf"])
    with pytest.raises(InputError, match="Choose one of: sacct, swf"):
        check_choice("format", 17, ["sacct", "swf"])


def test_missing_columns_are_listed_with_those_that_exist():
    with pytest.raises(InputError, match=r"lacks the column\(s\) ds, y; it has unique_id"):
        check_columns(pd.DataFrame({"unique_id": []}), ("unique_id", "ds", "y"), "usage")


LOG = pd.DataFrame({"user": "ada", "cluster": "alpha", "start": pd.date_range("2026-03-02", periods=20, tz="UTC")})
LOG = LOG.assign(end=LOG["start"] + pd.Timedelta("9h"), gpus=2)
LISTS = {
    "by": lambda value: gd.usage_series(LOG, by=value),
    "capacities": lambda value: gd.expected_queueing(LOG, value),
    "capacity": lambda value: gd.plan_capacity(FORECAST, installed=8).exceedance(value),
    "cluster": lambda value: gd.Study(LOG, cluster=value),
    "forecasters": lambda value: gd.Study(LOG, forecasters=value),
    "jobs": listed_jobs,
}
MAY_BE_EMPTY = {"by", "forecasters"}
FORECAST = pd.DataFrame({"unique_id": "total", "ds": LOG["start"], "M": 5.0, "M-lo-90": 4.0, "M-hi-90": 6.0})


@pytest.mark.parametrize("name", LISTS)
def test_one_value_is_no_list_and_most_lists_hold_something(name):
    with pytest.raises(InputError, match=f"{name} must be a list of .*; got int"):
        LISTS[name](5)
    if name not in MAY_BE_EMPTY:
        with pytest.raises(InputError, match=f"{name} is empty; it must hold"):
            LISTS[name](iter([]))


def test_an_iterator_is_a_list():
    assert gd.expected_queueing(LOG, iter([2, 4])).index.tolist() == [2, 4]
    assert len(gd.plan_capacity(FORECAST, installed=8).exceedance(iter([2, 4]))) == 2


def test_what_is_no_study_and_no_graph_is_refused():
    with pytest.raises(InputError, match="study must be a Study; got DataFrame"):
        gd.compare_purchases(LOG, {"more": {"buy": "A100"}})
    with pytest.raises(InputError, match="the nodes of a graph must be a table"):
        gd.structural_matrix(gd.OpGraph([], []))
    with pytest.raises(InputError, match="the edges of a graph must be pairs"):
        gd.structural_matrix(gd.OpGraph(pd.DataFrame({"type": ["Gemm"]}), []))


def test_long_text_is_cut():
    assert len(str(shorten("x" * 10**6))) == 60


@pytest.mark.parametrize(("text", "days"), [("90D", 90), ("2 weeks", 14), ("2W", 14), ("36h", 1.5)])
def test_durations(text, days):
    assert parse_duration(text) == pd.Timedelta(days=days)


@pytest.mark.parametrize("value", ["", "soon", 7, 7.5, "90", "0.5", "NaT", None])
def test_no_duration(value):
    with pytest.raises(InputError, match="length of time"):
        parse_duration(value)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_slurm_notation(days, hours, minutes, seconds):
    total = float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    assert parse_slurm_seconds(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}") == total


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 1800), ("02:30", 150), ("01:00:00", 3600), ("2-12", 216000), ("2-12:30", 217800)]
)
def test_short_slurm_notations(text, seconds):
    assert parse_slurm_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "UNLIMITED", "Partition_Limit", "1:2:3:4"])
def test_no_slurm_time(text):
    assert math.isnan(parse_slurm_seconds(text))


def test_unknown_amounts_read_unknown():
    assert format_seconds(math.nan) == format_count(math.inf) == "unknown"
    assert format_gib(math.nan) == "unknown"


def test_amounts_are_rounded_before_their_unit_is_chosen_and_never_have_an_exponent():
    assert [format_gib(gib) for gib in (0.5, 0.98, 0.9999, 999.7, 1100, -2000)] == [
        "512 MiB",
        "1,004 MiB",
        "1 GiB",
        "1,000 GiB",
        "1,100 GiB",
        "-2,000 GiB",
    ]
    assert [format_seconds(seconds) for seconds in (1e-9, 0.9996, 119.8, 3599, 172_790, 1500 * 86400)] == [
        "0.000001 ms",
        "1 s",
        "2 min",
        "1 h",
        "2 d",
        "1,500 d",
    ]
