"""Usage series against a brute-force reference, calendars, and files queried on disk."""

from __future__ import annotations

import calendar
import gzip
import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudemand import Study, write_jobs
from gpudemand._tables import write_table
from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyUsageWarning
from gpudemand.jobs import read_jobs
from gpudemand.jobs.table import as_jobs, check_jobs
from gpudemand.usage import query, runs
from gpudemand.usage.read import read_log, read_usage
from gpudemand.usage.series import (
    aggregate_usage,
    recorded_until,
    series_codes,
    to_long,
    to_wide,
    usage_series,
)
from tests.tiers import slow_beside

HOUR = 3600.0


def make_jobs(rows, **columns):
    """Jobs from (user, begin, end, gpus) with times as text or Timestamps."""
    frame = pd.DataFrame(rows, columns=["user", "start", "end", "gpus"])
    for name in ("start", "end"):
        frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    frame["job_id"] = [str(i) for i in range(len(frame))]
    return as_jobs(frame.assign(submit=frame["start"], **columns), kind="synthetic")


def brute_force(jobs, edges):
    """Overlap of every job with every bin, one by one, in GPU-hours."""
    begin = jobs["start"].fillna(jobs["submit"])
    return np.array(
        [
            sum(
                g * max((min(e, hi) - max(b, lo)).total_seconds(), 0.0) / HOUR
                for b, e, g in zip(begin, jobs["end"], jobs["gpus"], strict=True)
            )
            for lo, hi in itertools.pairwise(edges)
        ]
    )


intervals = st.lists(
    st.tuples(
        st.sampled_from(["ada", "bob", "eve"]),
        st.integers(0, 40 * 86400),
        st.integers(0, 12 * 86400),
        st.one_of(st.integers(0, 64).map(float), st.floats(0.01, 8.0)),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    intervals,
    st.sampled_from(["h", "D", "7D", "W-MON", "MS", "15min", "36h"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]),
)
def test_total_equals_gpus_times_time(rows, freq, tz):
    start = pd.Timestamp("2026-03-05 03:17:11", tz="UTC")  # the clocks of Berlin change on March 29
    jobs = make_jobs([(u, start + pd.Timedelta(b, "s"), start + pd.Timedelta(b + d, "s"), g) for u, b, d, g in rows])
    expected = float((jobs["gpus"] * (jobs["end"] - jobs["start"]).dt.total_seconds()).sum() / HOUR)
    usage = usage_series(jobs, by="user", freq=freq, tz=tz)
    assert usage["y"].sum() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (usage["y"] >= 0).all()
    total = usage_series(jobs, by=None, freq=freq, tz=tz)
    assert total["y"].sum() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_frequency_is_text_in_the_attributes():
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-02", 1)])
    found = [usage_series(jobs, freq=freq).attrs["freq"] for freq in ("D", pd.offsets.Day(), pd.Timedelta("6h"))]
    assert found == ["D", "D", "6h"]


@settings(max_examples=25, deadline=None)
@given(intervals, st.sampled_from(["D", "MS", "12h"]))
def test_every_bin_equals_the_brute_force_overlap(rows, freq):
    start = pd.Timestamp("2026-03-05 03:17:11", tz="UTC")
    jobs = make_jobs([(u, start + pd.Timedelta(b, "s"), start + pd.Timedelta(b + d, "s"), g) for u, b, d, g in rows])
    usage = usage_series(jobs, by=None, freq=freq, tz="Europe/Berlin")
    ds = pd.DatetimeIndex(usage["ds"])
    edges = ds.append(ds[-1:] + pd.tseries.frequencies.to_offset(freq))
    np.testing.assert_allclose(usage["y"], brute_force(jobs, edges), rtol=1e-9, atol=1e-9)


@settings(max_examples=12, deadline=None)
@given(intervals)
def test_peak_equals_a_sweep_over_all_times(rows):
    start = pd.Timestamp("2026-03-05", tz="UTC")
    rows = [(u, b // 1800 * 1800, d // 1800 * 1800, round(g)) for u, b, d, g in rows]
    jobs = make_jobs([(u, start + pd.Timedelta(b, "s"), start + pd.Timedelta(b + d, "s"), g) for u, b, d, g in rows])
    usage = usage_series(jobs, by=None, freq="6h", value="gpus_peak")
    begin, end = (jobs[name].to_numpy("datetime64[ns]") for name in ("start", "end"))
    for lo, peak in zip(usage["ds"], usage["y"], strict=True):
        moments = pd.date_range(lo, lo + pd.Timedelta("6h"), freq="30min", inclusive="left").to_numpy("datetime64[ns]")
        runs = (begin <= moments[:, None]) & (end > moments[:, None])
        assert peak == pytest.approx((runs @ jobs["gpus"].to_numpy()).max())


def test_days_of_23_and_25_hours_hold_their_true_length():
    jobs = make_jobs([("ada", "2026-03-01", "2026-11-01", 1)])
    usage = usage_series(jobs, tz="Europe/Berlin").set_index("ds")["y"]
    assert usage[pd.Timestamp("2026-03-29", tz="Europe/Berlin")] == 23
    assert usage[pd.Timestamp("2026-10-25", tz="Europe/Berlin")] == 25
    held = usage_series(jobs, tz="Europe/Berlin", value="gpus").set_index("ds")["y"]
    assert (held.iloc[1:-1] == 1).all()


#: Of the past, as laws of the future change.
MIDNIGHT_CHANGES = (
    ("Africa/Cairo", "2024-04-26", 23),
    ("America/Santiago", "2024-09-08", 23),
    ("Asia/Beirut", "2024-03-31", 23),
    ("America/Havana", "2024-11-03", 25),
)


@pytest.mark.parametrize(("tz", "day", "hours"), MIDNIGHT_CHANGES)
@pytest.mark.parametrize("days_before", [0, 3])
def test_a_day_whose_midnight_does_not_exist_begins_when_it_can(tz, day, hours, days_before):
    begin = pd.Timestamp(day, tz="UTC") - pd.Timedelta(days_before, "D") + pd.Timedelta("12h")
    usage = usage_series(make_jobs([("ada", begin, begin + pd.Timedelta("6D"), 1)]), tz=tz)
    clock = usage["ds"].dt.tz_localize(None)
    assert clock.dt.normalize().is_unique
    assert (clock[clock.dt.normalize() != day].dt.hour == 0).all()
    assert usage["y"].sum() == 6 * 24
    if days_before:
        assert usage["y"][clock.dt.normalize() == day].tolist() == [hours]


def test_idle_bins_are_exactly_zero_after_fractions_of_a_gpu():
    rows = [("ada", f"2026-03-0{d} 00:00", f"2026-03-0{d + 2} 12:00", 0.1 * d) for d in range(1, 6)]
    usage = usage_series(make_jobs([*rows, ("bob", "2026-03-20", "2026-03-21", 1)]), freq="h")
    ada = usage[(usage["unique_id"] == "ada") & (usage["ds"] >= "2026-03-09")]
    assert len(ada) > 0
    assert (ada["y"] == 0).all()


def test_dense_with_zeros_and_all_series_over_one_period():
    usage = usage_series(make_jobs([("ada", "2026-03-01", "2026-03-02", 1), ("bob", "2026-03-10", "2026-03-11", 2)]))
    assert usage.groupby("unique_id")["ds"].count().tolist() == [10, 10]
    assert usage["y"].tolist() == [24.0] + [0.0] * 18 + [48.0]


def test_running_jobs_end_at_until_and_pending_ones_hold_nothing():
    jobs = make_jobs([("ada", "2026-03-01", None, 1), ("bob", "2026-03-01", None, 4)], status=["running", "pending"])
    jobs.loc[1, "start"] = pd.NaT
    usage = usage_series(jobs, until="2026-03-03 12:00")
    assert usage.groupby("unique_id")["y"].sum().to_dict() == {"ada": 60.0, "bob": 0.0}
    waiting = usage_series(jobs, until="2026-03-03 12:00", pending=True)
    assert waiting.groupby("unique_id")["y"].sum().to_dict() == {"ada": 60.0, "bob": 240.0}


def test_pending_demand_begins_at_the_submit():
    jobs = make_jobs([("ada", "2026-03-02", "2026-03-03", 1)])
    jobs["submit"] = pd.Timestamp("2026-03-01", tz="UTC")
    assert usage_series(jobs)["y"].tolist() == [0.0, 24.0]
    assert usage_series(jobs, pending=True)["y"].tolist() == [24.0, 24.0]


def test_missing_start_counts_as_the_submit():
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-02", 3)])
    jobs["start"] = pd.Series([pd.NaT], dtype=jobs["end"].dtype)
    assert usage_series(jobs)["y"].sum() == 72


def test_a_finished_job_without_end_is_counted_apart():
    usage = usage_series(
        make_jobs([("ada", "2026-03-01", None, 1), ("ada", "2026-03-01", "2026-03-03", 1)], status="failed")
    )
    assert usage["y"].sum() == 48
    assert usage.attrs["unknown_end"] == 1


def test_unknown_gpus_are_counted_apart():
    usage = usage_series(
        make_jobs([("ada", "2026-03-01", "2026-03-02", np.nan), ("ada", "2026-03-01", "2026-03-02", 1)])
    )
    assert usage["y"].sum() == 24
    assert usage.attrs["unknown_gpus"] == 1


def test_submissions_are_counted_in_their_bin():
    rows = [("ada", f"2026-03-01 {h:02d}:59:59", "2026-03-04", 1) for h in (0, 0, 5)]
    usage = usage_series(make_jobs(rows), freq="h", value="jobs")
    assert usage["y"].iloc[:6].tolist() == [2, 0, 0, 0, 0, 1]
    assert usage["y"].sum() == 3


def test_a_total_below_the_rows_is_no_job(tmp_path):
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-02", 1), ("bob", "2026-03-01", "2026-03-02", 2)])
    total = make_jobs([(None, "2026-03-01", "2026-03-02", 3)]).assign(job_id="Total")
    pd.concat([jobs, total]).to_csv(tmp_path / "jobs.csv", index=False)
    with pytest.raises(InputError, match="1 a total of the other rows"):
        usage_series(tmp_path / "jobs.csv")
    with pytest.warns(RejectedRowsWarning, match="1 a total of the other rows"):
        assert usage_series(read_jobs(tmp_path / "jobs.csv"))["y"].sum() == 72
    named = pd.concat([jobs, total.assign(gpus=4.0)])
    named.to_csv(tmp_path / "named.csv", index=False)
    assert usage_series(read_jobs(tmp_path / "named.csv"))["y"].sum() == usage_series(tmp_path / "named.csv")["y"].sum()


@pytest.mark.parametrize("as_file", [False, True])
def test_a_submission_at_the_end_of_the_log_is_counted(tmp_path, as_file):
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-02", 1), ("bob", "2026-03-02", "2026-03-03", 1)])
    waits = pd.Timestamp("2026-03-03", tz="UTC")
    jobs = pd.concat([jobs, jobs.iloc[:1].assign(submit=waits, start=pd.NaT, end=pd.NaT, status="pending", job_id="2")])
    if as_file:
        jobs.to_parquet(tmp_path / "jobs.parquet")
    source = tmp_path / "jobs.parquet" if as_file else jobs
    for freq in ("D", "h", "36h"):
        assert usage_series(source, by=None, value="jobs", freq=freq)["y"].sum() == 3
    assert usage_series(source, by=None, value="jobs")["y"].tolist() == [1, 1, 1]
    assert usage_series(source, by=None, value="jobs", until=waits)["y"].tolist() == [1, 1]


def test_start_and_until_cut_the_period():
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-31", 1)])
    usage = usage_series(jobs, start="2026-03-10", until="2026-03-12 12:00")
    assert usage["y"].tolist() == [24, 24, 12]
    assert usage_series(jobs, start="2026-03-10", until="2026-03-12 12:00", partial=False)["y"].tolist() == [24, 24]


def test_until_at_an_edge_leaves_no_empty_bin():
    usage = usage_series(make_jobs([("ada", "2026-03-01", "2026-03-03", 1)]), partial=False)
    assert usage["y"].tolist() == [24, 24]


def test_paths_and_unknown_names():
    jobs = make_jobs([("a/b", "2026-03-01", "2026-03-02", 1), (None, "2026-03-01", "2026-03-02", 2)], group=["x", "x"])
    assert usage_series(jobs, by="group/user")["unique_id"].tolist() == ["x/a%2Fb", "x/unknown"]


@pytest.mark.parametrize("suffix", [None, "csv", "parquet"])
def test_names_are_trimmed_and_those_that_differ_stay_apart(tmp_path, suffix):
    same, empty, apart = (
        ["ada", "ada ", "\u2003ada\u00a0", "\x1fada\t"],
        [" ", "\u3000\t", ""],
        ["a/b", "a%2Fb", "a%252Fb"],
    )
    jobs = pd.DataFrame({"user": [*same, *empty, *apart], "start": "2026-03-01", "end": "2026-03-02", "gpus": 1})
    write = {"csv": jobs.to_csv, "parquet": jobs.to_parquet}.get(suffix, lambda *_, **__: None)
    write(tmp_path / f"jobs.{suffix}", index=False)
    source = tmp_path / f"jobs.{suffix}" if suffix else jobs
    for log in (source, read_jobs(source, tz="UTC") if suffix else check_jobs(jobs, tz="UTC")):
        usage = usage_series(log, tz="UTC")
        expected = {"a%25252Fb": 24, "a%252Fb": 24, "a%2Fb": 24, "ada": 96, "unknown": 72}
        assert usage.set_index("unique_id")["y"].to_dict() == expected
        codes = series_codes(check_jobs(jobs, tz="UTC"), usage["unique_id"])
        assert usage["unique_id"].iloc[codes].tolist() == ["ada"] * 4 + ["unknown"] * 3 + [
            "a%2Fb",
            "a%252Fb",
            "a%25252Fb",
        ]


def test_text_that_is_no_unicode_is_refused():
    jobs = pd.DataFrame({"user": pd.Series(["m\udcfcller"], dtype=object), "start": "2026-03-01", "end": "2026-03-02"})
    with pytest.raises(InputError, match="the column 'user' of jobs holds text that is no Unicode"):
        usage_series(jobs.assign(gpus=1), tz="UTC")


def test_hierarchy_sums_to_the_total():
    rows = [(u, "2026-03-01", "2026-03-04", g) for u, g in (("ada", 1), ("bob", 2), ("eve", 4))]
    usage = usage_series(make_jobs(rows, group=["x", "x", "y"], cluster="c"), by="cluster/group/user")
    nodes, summing, tags = aggregate_usage(usage, "cluster/group/user")
    wide = to_wide(nodes)
    assert wide.loc["total"].tolist() == wide.loc["c"].tolist() == [168.0] * 3
    assert wide.loc["c/x"].tolist() == [72.0] * 3
    assert tags["cluster/group"] == ["c/x", "c/y"]
    assert summing.shape == (1 + 1 + 2 + 3, 4)
    with pytest.raises(InputError, match="do not have the 2 parts"):
        aggregate_usage(usage, "cluster/user")


def leaves(ada, bob, eve):
    ds = pd.date_range("2026-03-02", periods=4)
    rows = {"x/ada": ada, "x/bob": bob, "y/eve": eve}
    usage = pd.concat([pd.DataFrame({"unique_id": name, "ds": ds, "y": y}) for name, y in rows.items()])
    return usage.astype({"y": float})


@pytest.mark.parametrize("as_rows", [True, False])
def test_a_series_that_begins_late_adds_nothing_before(as_rows):
    usage = leaves([1, 1, 1, 1], [2, 2, 2, 2], [None, None, 4, 4])
    wide = to_wide(aggregate_usage(usage if as_rows else usage.dropna(), "group/user")[0])
    assert wide.loc["total"].tolist() == [3, 3, 7, 7]
    assert wide.loc["x"].tolist() == [3] * 4
    assert wide.loc["x/ada"].tolist() == [1] * 4
    for name in ("y", "y/eve"):
        np.testing.assert_array_equal(wide.loc[name], [np.nan, np.nan, 4, 4])


@pytest.mark.parametrize(("eve", "place"), [([4, None, 4, 4], [1]), ([4, 4, None, None], [2, 3])], ids=["gap", "end"])
def test_what_is_not_known_makes_only_sums_over_it_unknown(eve, place):
    usage = leaves([1, 1, 1, 1], [2, 2, 2, 2], eve).dropna()
    with pytest.warns(
        UnlikelyUsageWarning, match=r"1 of 3 series have no value .* 'y/eve' at 2026-03-0.* fill_value=0"
    ):
        wide = to_wide(aggregate_usage(usage, "group/user")[0])
    assert wide.loc["x"].tolist() == [3] * 4
    for name in ("total", "y", "y/eve"):
        assert np.flatnonzero(wide.loc[name].isna()).tolist() == place
    filled = to_wide(aggregate_usage(to_long(to_wide(usage, fill_value=0)), "group/user")[0])
    assert filled.loc["total"].iloc[place].tolist() == [3.0] * len(place)


def test_a_series_without_any_value_is_in_no_sum():
    with pytest.raises(InputError, match="'y/eve' has no value at all"):
        aggregate_usage(leaves([1, 1, 1, 1], [2, 2, 2, 2], [None] * 4), "group/user")


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("value", ["gpu_hours", "gpus", "gpus_peak", "wanted", "jobs"])
def test_a_file_gives_what_the_table_gives(tmp_path, monkeypatch, suffix, value):
    monkeypatch.setattr(runs, "_BATCH", 7)  # changes of the table in many parts
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 10**6, 300), "s")
    jobs = make_jobs(
        list(
            zip(
                rng.choice(["ada", "bob"], 300),
                begin,
                begin + pd.to_timedelta(rng.integers(0, 10**5, 300), "s"),
                rng.integers(1, 9, 300),
                strict=True,
            )
        )
    )
    path = tmp_path / f"it's{suffix}"
    jobs.to_parquet(path) if suffix == ".parquet" else jobs.to_csv(path, index=False)
    expected = usage_series(jobs, freq="h", value=value)
    found = usage_series(path, freq="h", value=value)
    assert found["unique_id"].tolist() == expected["unique_id"].tolist()
    assert (found["ds"] == expected["ds"]).all()
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("column", "text", "reason"),
    [
        ("gpus", "-1", "1 negative number of GPUs"),
        ("gpus", "many", "1 an unreadable cell"),
        ("end", "2020-01-01 00:00:00+00:00", "1 end before start"),
        ("job_id", "0", "1 duplicate job id"),
    ],
)
def test_a_file_with_bad_rows_is_refused_with_counts(tmp_path, monkeypatch, column, text, reason):
    monkeypatch.setattr(query, "_HASHES", 1)  # in two parts
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-02", 1)] * 2).astype({"gpus": object})
    frame = jobs.astype(object)
    frame.loc[1, column] = text
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(InputError, match=reason):
        usage_series(tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("log.csv", b"", "is empty"),
        ("log.csv", b"a,b\n1,2\n", "no canonical job table"),
        ("log.parquet", b"PAR1 not at all", "is not a Parquet file"),
        ("log.csv.gz", b"\x1f\x8b\x08\x00broken", "is cut off or damaged"),
        ("log.json", b"{}", "neither Parquet nor CSV"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        usage_series(tmp_path / name)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"by": "usr"}, "Did you mean 'user'"),
        ({"value": "gpu hours"}, "Did you mean 'gpu_hours'"),
        ({"freq": "ME"}, "use 'MS'"),
        ({"freq": "fortnight"}, "is not a frequency"),
        ({"freq": 24}, "is not a frequency"),
        ({"freq": "-1D"}, "positive frequency"),
        ({"freq": "us"}, "too many bins"),
        ({"until": "2019-01-01"}, "lies before the start"),
        ({"until": "tomorrow-ish"}, "is not a time"),
        ({"until": "10.02.2026"}, "is not a time"),
        ({"by": "group"}, "names no 'group'"),
    ],
)
def test_invalid_arguments_raise_a_clear_error(arguments, reason):
    with pytest.raises(InputError, match=reason):
        usage_series(make_jobs([("ada", "2026-03-01", "2026-03-31", 1)]), **arguments)


def test_no_rows_and_no_table():
    with pytest.raises(InputError, match="no rows"):
        usage_series(make_jobs([("ada", "2026-03-01", "2026-03-31", 1)]).iloc[:0])
    with pytest.raises(InputError, match="lacks the column"):
        usage_series(pd.DataFrame({"a": [1]}))
    with pytest.raises(InputError, match="there is no log"):
        usage_series("nowhere.parquet")


def test_long_and_wide_are_inverse():
    usage = usage_series(make_jobs([("ada", "2026-03-01", "2026-03-04", 1), ("bob", "2026-03-02", "2026-03-03", 2)]))
    wide = to_wide(usage)
    assert wide.shape == (2, 3)
    pd.testing.assert_frame_equal(to_long(wide), usage, check_dtype=False)
    with pytest.raises(InputError, match="duplicate stamps"):
        to_wide(pd.concat([usage, usage]))
    with pytest.raises(InputError, match="is a long table, a row a series and time"):
        to_long(usage)


def test_recorded_usage_is_read_back(tmp_path):
    usage = usage_series(make_jobs([("ada", "2026-03-01", "2026-03-04", 1)]))
    usage.to_csv(tmp_path / "usage.csv", index=False)
    usage.to_parquet(tmp_path / "usage.parquet")
    for name in ("usage.csv", "usage.parquet"):
        assert read_usage(tmp_path / name)["y"].tolist() == [24.0] * 3
    with pytest.raises(InputError, match="there is no file"):
        read_usage(tmp_path / "nothing.csv")


NAMES = ["NA", "null", "", "1e5", "007", "a,b", 'say "hi"', "=1+1", "a/b", "müller", "unique_id", "line\nbreak", '"\n,']


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("freq", ["h", "D", "W-MON", "MS"])
@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "+05:45"])
def test_usage_that_was_written_is_read_back_exactly(tmp_path, tz, freq, suffix):
    start = pd.date_range("2025-10-01", periods=60, freq="79h", tz="UTC")
    names = pd.Series(NAMES * 5)[:60]
    jobs = pd.DataFrame({"user": names, "start": start, "end": start + pd.Timedelta("7.123h"), "gpus": 0.7})
    usage = usage_series(jobs, freq=freq, value="gpus", tz=tz)
    write_table(usage, tmp_path / f"usage.{suffix}")
    read = read_usage(tmp_path / f"usage.{suffix}", tz=tz if suffix == "csv" else None)
    # Some versions write 16 decimals to CSV.
    exact = {"rtol": 0.0, "atol": 1e-15} if suffix == "csv" else {"check_exact": True}
    pd.testing.assert_frame_equal(read, usage, **exact)
    assert suffix == "csv" or read.attrs["freq"] == usage.attrs["freq"]


ANCHORED = [
    *(f"{n}W-{day[:3].upper()}" for n in ("", 2) for day in calendar.day_name),
    *(f"{period}S-{month.upper()}" for period in "QY" for month in calendar.month_abbr[1:]),
    *("7D", "36h", "MS", "2MS", "SMS", "BMS", "B", "2B"),
]


@pytest.mark.parametrize("freq", ANCHORED)
def test_bins_of_every_anchor_hold_the_whole_log(freq):
    start = pd.date_range("2026-03-02 10:00", periods=9, freq="31h", tz="UTC")
    jobs = pd.DataFrame({"user": "ada", "start": start, "end": start + pd.Timedelta("1h"), "gpus": 2})
    for log in (jobs, jobs.head(1)):
        assert usage_series(log, by=None, freq=freq, value="jobs")["y"].sum() == len(log)
        assert usage_series(log, by=None, freq=freq)["y"].sum() == pytest.approx(2 * len(log))


def test_local_hours_that_are_repeated_follow_one_another(tmp_path):
    hours = pd.date_range("2026-10-25", periods=6, freq="h", tz="Europe/Berlin")
    local = pd.DataFrame({"unique_id": "ada", "ds": hours.tz_localize(None), "y": range(6)})
    for name in ("usage.csv", "usage.parquet"):
        write_table(local, tmp_path / name)
        read = read_usage(tmp_path / name, tz="Europe/Berlin")
        assert pd.DatetimeIndex(read["ds"]).equals(hours.as_unit("ns"))
        assert read["y"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


ROW = "ada,2026-03-01T00:00Z,4\n"
DAYS = "ada,2026-03-29 00:00+01:00,4\nada,2026-03-30 00:00+02:00,4\n"
TWICE = "ada,2026-10-25 02:00+02:00,4\n"


@pytest.mark.parametrize(
    ("rows", "tz", "message"),
    [
        ("ada,03/01/2026,4\n", None, r"Write times as 2026-01-05 10:00"),
        ("ada,2026-03-29 02:30,4\n", "Europe/Berlin", "daylight saving skips"),
        ("ada,2026-03-29 02:30,4\n", None, "have no time zone; pass tz="),
        (ROW, "Mars/X", "is not a time zone"),
        (DAYS, None, "2 offsets, as of a zone whose clock changes; pass tz="),
        (DAYS, "UTC", "the days in 'usage.csv' are not those of tz='UTC'"),
        (TWICE + TWICE, "Europe/Berlin", "duplicate stamps"),
        (ROW + "bob,2026-03-01T00:00Z,-4\n", None, "line 3: negative number of GPUs"),
        (ROW + "bob,2026-03-01T00:00Z,inf\n", None, "line 3: unreadable y"),
        (ROW + ",2026-03-01T00:00Z,4\n", None, "line 3: without unique_id"),
        (ROW + "bob,2026-03-01T00:00Z,4,9\n", None, "line 3: with a wrong number of fields"),
        (ROW + '"bob,2026-03-01T00:00Z,4\n' + ROW, None, "quotation mark on line 3 of 'usage.csv' is never closed"),
        (ROW + 'bob,2026-03-01T00:00Z,4"\n' + ROW, None, "line 3: with a misplaced quotation mark"),
    ],
)
def test_usage_that_cannot_be_read_says_why(tmp_path, rows, tz, message):
    (tmp_path / "usage.csv").write_text("unique_id,ds,y\n" + rows)
    with pytest.raises(InputError, match=message):
        read_usage(tmp_path / "usage.csv", tz=tz)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("usage.csv", b"", "is empty"),
        ("usage.csv", ("unique_id,ds,y\n" + ROW).encode("utf-16"), "is text in UTF-16; save it as UTF-8"),
        ("usage.parquet", b"PAR1 and no more", "not a Parquet file"),
    ],
)
def test_damaged_usage_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_usage(tmp_path / name)


def test_usage_in_gzip_and_with_quoted_names_of_columns_is_no_log_of_jobs(tmp_path):
    (tmp_path / "usage.csv.gz").write_bytes(gzip.compress(('"unique_id","ds","y"\n' + ROW).encode()))
    usage = read_log(tmp_path / "usage.csv.gz")
    assert usage["y"].tolist() == [4.0]
    assert (usage.attrs["kind"], usage.attrs["source"]) == ("measured", "usage.csv.gz")


def test_there_is_at_least_one_whole_bin():
    with pytest.raises(InputError, match="less than one whole bin"):
        usage_series(make_jobs([("ada", "2026-03-01", "2026-03-01 05:00", 1)]), partial=False)


@pytest.mark.parametrize(
    ("freq", "complete_from", "expected"),
    [
        ("MS", None, [24, 24]),
        ("W-SUN", None, [24] * 9),
        ("7D", None, [24 * (1 - 10 / 168)] + [24] * 9),
        ("D", None, [14] + [24] * 70),
        ("D", "2026-01-20T18:00:00+00:00", [24] * 70),
        ("D", "2026-01-21T00:05:00+00:00", [24 * (1 - 5 / 1440)] + [24] * 69),
        ("MS", "2026-02-03T12:00:00+00:00", [24]),
        ("QS", None, [24 * (70 + 14 / 24) / 90]),
    ],
)
@pytest.mark.parametrize("as_file", [False, True])
def test_a_first_bin_in_which_the_log_begins_is_partial(freq, complete_from, expected, as_file, tmp_path):
    """24 GPUs since the 20th of January, 10:00, which is a Tuesday."""
    day = pd.date_range("2026-01-20 10:00", "2026-04-01", freq="h")
    jobs = make_jobs([("ada", time, time + pd.Timedelta("1h"), 24) for time in day])
    jobs.attrs |= {"kind": "measured"} | ({"complete_from": complete_from} if complete_from else {})
    if as_file:
        write_jobs(jobs, tmp_path / "jobs.parquet")
    source = tmp_path / "jobs.parquet" if as_file else jobs
    options = {"by": None, "freq": freq, "value": "gpus", "until": "2026-04-01 12:00"}
    assert usage_series(source, **options, partial=False)["y"].tolist() == pytest.approx(expected)
    assert len(usage_series(source, **options)) > len(expected)
    study = Study(jobs, by="total", until="2026-04-01 12:00", installed=24)
    assert study.source.usage(None, freq, "gpus")["y"].tolist() == pytest.approx(expected)


def test_a_log_without_recent_submissions_ends_at_its_last_one():
    rows = [("ada", f"2026-03-{d:02d}", f"2026-03-{d + 1:02d}", 1) for d in range(1, 10)]
    assert recorded_until(make_jobs(rows)) == pd.Timestamp("2026-03-10", tz="UTC")
    long_tail = [*rows, ("ada", "2026-03-10", "2026-04-30", 1)]
    assert recorded_until(make_jobs(long_tail)) == pd.Timestamp("2026-03-10", tz="UTC")
    one = make_jobs([("ada", "2026-03-01", "2026-03-05", 1)])
    assert recorded_until(one) == pd.Timestamp("2026-03-05", tz="UTC")
    with pytest.raises(InputError, match="no rows"):
        recorded_until(one.iloc[:0])


def test_the_kind_of_data_is_read_and_never_guessed(tmp_path):
    jobs = make_jobs([("ada", "2026-03-01", "2026-03-04", 1)])
    jobs.to_parquet(tmp_path / "log.parquet")
    jobs.to_csv(tmp_path / "log.csv", index=False)
    assert usage_series(tmp_path / "log.parquet").attrs["kind"] == "synthetic"
    assert usage_series(tmp_path / "log.csv").attrs["kind"] == ""
    jobs.attrs = {}
    assert usage_series(jobs).attrs["kind"] == ""


def _untidy_jobs(seed):
    """Jobs that run, wait, gave up, ended at no known time, and name nobody or somebody with a slash."""
    rng = np.random.default_rng(seed)
    n = 150
    submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(rng.uniform(0, 9 * 86400, n).round(3), unit="s")
    start = submit + pd.to_timedelta(rng.exponential(3e3, n).round(3) * rng.integers(0, 2, n), unit="s")
    end = start + pd.to_timedelta(rng.lognormal(9, 2, n).round(3), unit="s")
    status = rng.choice(["completed", "failed", "cancelled", "running", "pending"], n, p=[0.4, 0.2, 0.1, 0.2, 0.1])
    jobs = pd.DataFrame({"submit": submit, "start": start, "end": end, "status": status})
    jobs.loc[jobs["status"].isin(["running", "pending"]), "end"] = pd.NaT
    jobs.loc[jobs["status"] == "pending", "start"] = pd.NaT
    never = (jobs["status"] == "cancelled") & (rng.random(n) < 0.5)
    jobs.loc[never, "start"] = jobs.loc[never, "end"]
    jobs.loc[rng.random(n) < 0.03, "end"] = pd.NaT
    jobs["gpus"] = rng.choice([0.0, 0.5, 1.0, 2.0, 8.0, np.nan], n, p=[0.1, 0.1, 0.4, 0.2, 0.15, 0.05])
    jobs["requested_time"] = np.where(rng.random(n) < 0.6, rng.choice([600.0, 3600.0, 86400.0], n), np.nan)
    jobs["user"] = rng.choice(["ada", "ada ", "a/b", "a%2Fb", "unknown", None], n)
    jobs["group"] = rng.choice(["x", "y", None], n)
    return jobs


@pytest.mark.parametrize("seed", slow_beside([0], range(6)))
@pytest.mark.parametrize("requested", [True, False])
def test_a_table_in_memory_and_its_file_have_the_same_usage(tmp_path, seed, requested):
    jobs = _untidy_jobs(seed)
    jobs = jobs if requested else jobs.drop(columns="requested_time")
    jobs.to_parquet(tmp_path / "jobs.parquet")
    for by in (None, "user", "group/user"):
        for value in ("gpu_hours", "gpus_peak", "wanted", "jobs"):
            options = {"by": by, "value": value, "freq": "6h"}
            table, file = usage_series(jobs, **options), usage_series(tmp_path / "jobs.parquet", **options)
            pd.testing.assert_frame_equal(table, file, rtol=1e-9)
            assert table.attrs == file.attrs
    both = [usage_series(source, pending=True) for source in (jobs, tmp_path / "jobs.parquet")]
    pd.testing.assert_frame_equal(*both, rtol=1e-9)
