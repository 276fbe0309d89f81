"""Error messages of argument checks, and parsing and formatting of units."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudemand._validation import InputError, check_choice, check_columns, check_number, shorten
from gpudemand.units import format_count, format_gib, format_seconds, parse_duration, parse_slurm_seconds


@pytest.mark.parametrize("value", ["3", None, True, math.nan, math.inf, [1], 1e400])
def test_not_a_number(value):
    with pytest.raises(InputError, match="must be a number of at least 0 and at most 5; got"):
        check_number("x", value, 0, 5)


@pytest.mark.parametrize("value", [0, 5, np.float32(2.5), np.int64(3)])
def test_a_number_in_range(value):
    assert check_number("x", value, 0, 5) == float(value)


def test_the_nearest_name_is_suggested():
    with pytest.raises(InputError, match="Did you mean 'sacct'"):
        check_choice("format", "Sact", ["sacct", "swf"])
    with pytest.raises(InputError, match="Choose one of: sacct, swf"):
        check_choice("format", 17, ["sacct", "swf"])


def test_missing_columns_are_listed_with_those_that_exist():
    with pytest.raises(InputError, match=r"lacks the column\(s\) ds, y; it has unique_id"):
        check_columns(pd.DataFrame({"unique_id": []}), ("unique_id", "ds", "y"), "usage")


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
