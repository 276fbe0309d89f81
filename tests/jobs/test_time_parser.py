from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.jobs import read_jobs
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.times import (
    DAY_NUMBER,
    MILLISECONDS,
    NO_SUCH_TIME,
    OUTSIDE,
    TimeParser,
    parse_timestamp,
    parse_timezone,
)


def parse(*texts: str | None, tz: str = "UTC") -> tuple[list[str], set[str]]:
    times, wrong = TimeParser(parse_timezone(tz)).parse(pd.Series(texts, dtype=STRING))
    return times.astype(str).str[:19].tolist(), {reason for reason, rows in wrong.items() if rows.any()}


@pytest.mark.parametrize(
    "text",
    [
        *("2024-05-01T10:00:00+02:00", "2024-05-01 10:00:00 +0200", "2024-05-01T08:00:00Z", "2024-05-01T03:00-05"),
        *("2024-05-01 08:00", "2024-05-01T08:00:00.000000", "1714550400", "1714550400.0"),
    ],
)
def test_spellings_of_one_time(text: str) -> None:
    assert parse(text) == (["2024-05-01 08:00:00"], set())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(
            ("1714550400000", MILLISECONDS),
            ("1714550400000000000", MILLISECONDS),
            ("0", OUTSIDE),
            ("9000000000", OUTSIDE),
        ),
        *((f"2026-01-05 10:00 {zone}", "unreadable time") for zone in ("PM", "CET")),
        *(("9999-12-31T00:00:00", OUTSIDE), ("52000-01-01", OUTSIDE), ("1970-01-01 00:00:00+00:00", OUTSIDE)),
        *(("2024-02-30 00:00", "unreadable time"), ("01/05/2024", "unreadable time"), ("soon", "unreadable time")),
        *(
            ("46027.4", DAY_NUMBER),
            ("-5", "unreadable time"),
            ("2024-05-01T25:00:00", "unreadable time"),
            ("9" * 30, MILLISECONDS),
        ),
    ],
)
def test_unusable_times_have_a_reason(text: str, reason: str) -> None:
    times, wrong = parse("2024-05-01 08:00", text, None)
    assert times[0] == "2024-05-01 08:00:00"
    assert wrong == {reason} or (text.startswith("1970") and not wrong)


def test_of_a_repeated_hour_the_first_is_taken() -> None:
    times, wrong = parse("2024-10-27 02:30", "2024-10-27 01:59", "2024-10-27 03:00", tz="Europe/Berlin")
    assert (times, wrong) == (["2024-10-27 00:30:00", "2024-10-26 23:59:00", "2024-10-27 02:00:00"], set())


def test_a_skipped_hour_is_refused() -> None:
    times, wrong = parse("2024-03-31 02:30", "2024-03-31 01:59", tz="Europe/Berlin")
    assert times[1] == "2024-03-31 00:59:00"
    assert wrong == {NO_SUCH_TIME}


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "America/Sao_Paulo", "America/St_Johns", "Asia/Kolkata", "Africa/Cairo"]
)
def test_shifting_whole_days_agrees_with_the_zone_at_every_half_hour(name: str) -> None:
    naive = pd.date_range("1998-01-01", "2012-01-01", freq="30min", unit="ns")
    fast = TimeParser(parse_timezone(name)).localize(naive)
    slow = naive.tz_localize(name, ambiguous=np.ones(len(naive), dtype=bool), nonexistent="NaT").tz_convert("UTC")
    assert fast.equals(slow)


def test_zones() -> None:
    assert parse_timezone("+08:00") == dt.timezone(dt.timedelta(hours=8))
    assert parse_timezone(dt.UTC) is dt.UTC
    with pytest.raises(InputError, match="Did you mean 'Europe/Berlin'"):
        parse_timezone("Europe/Berlinn")
    with pytest.raises(InputError, match="is not a time zone"):
        parse_timezone(8)


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("x", "not a time"),
        (5, "not a time"),
        ("10.02.2026 00:00Z", "not a time"),
        ("1492-01-01 00:00Z", "1985"),
        ("2020-01-01", "no time zone"),
    ],
)
def test_origins_that_are_none(origin: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TimeParser.from_arguments(None, origin, "log")


def test_a_naive_origin_takes_the_zone_but_for_1970() -> None:
    assert TimeParser.from_arguments("Asia/Shanghai", "1970-01-01", "log").origin() == pd.Timestamp(0, tz="UTC")
    assert TimeParser.from_arguments("Asia/Shanghai", "2020-01-01 08:00", "log").origin() == pd.Timestamp(
        "2020-01-01", tz="UTC"
    )


@pytest.mark.parametrize(
    ("text", "tz", "utc"),
    [
        ("2025-10-26 02:30", "Europe/Berlin", "2025-10-26 00:30"),
        ("2025-03-30 02:30", "Europe/Berlin", "2025-03-30 01:00"),
        ("2025-03-30", "Asia/Beirut", "2025-03-29 22:00"),
        ("2025-10-26 02:30+01:00", "Europe/Berlin", "2025-10-26 01:30"),
    ],
)
def test_an_argument_is_a_time_in_nights_of_daylight_saving_too(text: str, tz: str, utc: str) -> None:
    assert parse_timestamp(text, tz) == pd.Timestamp(utc, tz="UTC")


GUESSES = ["10.02.2026", "13/02/2026", "10-02-2026", "26-02-03", "Feb 2026", "12:00", "today", "now", "2026-13-01", ""]
NO_TIMES = [20250101, 1.7e9, "9999-01-01", "0001-01-01", pd.NaT, None, np.int64(1.7e18), *GUESSES]


@pytest.mark.parametrize("value", NO_TIMES)
def test_an_argument_that_is_no_plausible_time_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="is not a time from 1985 to 2199"):
        parse_timestamp(value)


@pytest.mark.parametrize(
    "value",
    ["2026-03-01 00:00", "2026-03-01T00:00Z", " 2026-03-01 ", "2026-03-01 00:00 UTC", "2026-03", dt.date(2026, 3, 1)],
)
def test_a_date_of_iso_8601_needs_no_guess(value: object) -> None:
    assert parse_timestamp(value) == pd.Timestamp("2026-03-01", tz="UTC")


def test_a_job_that_ends_before_its_start_ended_in_the_second_of_the_repeated_hours(tmp_path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text(
        "user,submit,start,end,gpus\n"
        "ada,2025-10-26 00:30,2025-10-26 02:50,2025-10-26 02:10,1\n"
        "ada,2025-10-26 02:50,2025-10-26 02:10,2025-10-26 02:30,1\n"
        "ada,2025-10-26 02:10,2025-10-26 02:20,2025-10-26 02:50,1\n"
    )
    jobs = read_jobs(log, tz="Europe/Berlin", strict=True)
    assert jobs["start"].dt.strftime("%H:%M").tolist() == ["00:50", "01:10", "00:20"]
    assert jobs["end"].dt.strftime("%H:%M").tolist() == ["01:10", "01:30", "00:50"]
    table = pd.read_csv(log, parse_dates=["submit", "start", "end"])
    pd.testing.assert_series_equal(check_jobs(table, tz="Europe/Berlin")["end"], jobs["end"])
