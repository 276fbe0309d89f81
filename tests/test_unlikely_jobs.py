"""Jobs that are likely entered wrong are named, and ordinary logs are left alone."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.jobs.plausibility import unlikely_jobs
from gpudemand.jobs.table import check_jobs
from gpudemand.study.settings import Settings
from tests.jobs.test_real_logs import ANY_START, ATLAS, DLRM, GENAI, KTH, PAI, PHILLY, VENUS, VENUS_START
from tests.report.conftest import make_log

LOG = make_log(days=40)
DATES = ["1970-01-01", "2016-03-01", "2036-05-01"]


def changed(rows=slice(7, 7), log=LOG, **columns):
    jobs = log.copy()
    for name, value in columns.items():
        jobs.loc[rows, name] = pd.Timestamp(value, tz="UTC") if isinstance(value, str) else value
    return jobs


def sentences(jobs, **settings):
    return unlikely_jobs(jobs, Settings(**settings).total_installed)


@pytest.mark.parametrize("date", DATES)
def test_a_job_of_another_decade_is_named(date):
    (text,) = sentences(changed(submit=date, start=date, end=date))
    day = pd.Timestamp(date)
    where = f"(job 7: {day.day} {day:%b %Y})"
    assert text.startswith(f"1 of 320 jobs has a submission, start and end years from those of all others {where}")


@pytest.mark.parametrize(("name", "date"), [("submit", "1970-01-01"), ("start", "2036-01-01"), ("end", "2036-01-01")])
def test_one_wrong_time_is_enough(name, date):
    (text,) = sentences(changed(**{name: date}))
    assert f"has a{'n' * (name == 'end')} {name.replace('submit', 'submission')} years" in text


def test_several_dates_are_counted_together_but_not_a_part_of_the_log():
    log = LOG
    for row, date in zip([3, 5, 9], DATES, strict=True):
        log = changed(slice(row, row), log, submit=date, start=date, end=date)
    (text,) = sentences(log)
    assert text.startswith("3 of 320 jobs have")
    early = "2016-03-01"
    assert sentences(changed(slice(0, 40), submit=early, start=early, end=early)) == []
    assert len(sentences(changed(slice(0, 10), submit=early, start=early, end=early))) == 1


def survivors(**attrs):
    """Jobs of six hours, and every eighth of ten days, of which those are left that ran since the first of March."""
    start = pd.Series(pd.date_range("2026-02-01", "2026-03-31", freq="3h", tz="UTC"))
    end = start + pd.to_timedelta([240 if job % 8 == 0 else 6 for job in range(len(start))], unit="h")
    jobs = pd.DataFrame({"user": "ada", "submit": start, "start": start, "end": end, "gpus": 1.0})
    jobs = check_jobs(jobs[end >= pd.Timestamp("2026-03-01", tz="UTC")])
    jobs.attrs = attrs
    return jobs


@pytest.mark.parametrize("attrs", [{}, {"kind": "measured", "complete_from": "2026-01-15T00:00:00+00:00"}])
def test_what_still_ran_when_a_table_begins_is_named_unless_it_says_when_it_does(attrs):
    (text,) = sentences(survivors(**attrs))
    assert text.startswith("no job of this table ended before 2026-03-01 00:00 UTC, though many began")
    jobs = survivors(complete_from=text.split("'")[3])
    assert sentences(jobs) == []
    assert gd.usage_series(jobs)["ds"].min() == pd.Timestamp("2026-03-01", tz="UTC")


def test_a_trace_that_is_published_begins_where_it_was_cut():
    assert sentences(survivors(kind="public trace")) == []


def test_months_without_jobs_are_no_mistake():
    old = "2025-04-01"  # nine months before all others, which span 40 days
    assert sentences(changed(slice(0, 0), submit=old, start=old, end=old)) == []


def test_a_digit_too_many_in_gpus_is_named_unless_as_many_are_installed():
    typo = changed(gpus=5000.0)
    (text,) = sentences(typo)
    assert text.startswith("1 of 320 jobs has far more GPUs than all others held at once, ")
    assert "(job 7: 5,000 GPUs); they count as held. Correct" in text
    (text,) = sentences(typo, installed=96)
    assert "they count as held. Correct" in text
    assert sentences(typo, installed=5000) == []
    times = pd.date_range("2026-01-01", periods=2, tz="UTC")
    assert sentences(typo, installed={"A100": pd.Series([96.0, 5000.0], times)}) == []
    typo["status"] = "cancelled"
    typo["end"] = typo["start"]
    assert sentences(typo) == []  # never held any


def test_a_large_job_of_a_cluster_that_is_otherwise_half_full_is_none():
    small = LOG.assign(gpus=1.0)
    most = gd.usage_series(small.drop(7), by=None, value="gpus_peak")["y"].max()
    assert sentences(changed(log=small, gpus=2 * most)) == []
    assert len(sentences(changed(log=small, gpus=2 * most + 1))) == 1
    assert sentences(changed(slice(7, 12), log=small, gpus=500.0)) == []  # as 2 % of the jobs have


def test_growth_is_no_mistake():
    days = pd.Series(2.0 ** (pd.RangeIndex(200) / 20))  # ten doublings
    times = pd.Timestamp("2016-01-01", tz="UTC") + pd.to_timedelta(days * 4, "D")
    assert sentences(LOG.head(200).assign(submit=times, start=times, end=times, gpus=days)) == []


def test_a_study_says_so():
    """And the page what its source says: `tests.report.test_sections`."""
    typo = changed(gpus=5000.0)
    with pytest.warns(gd.UnlikelyJobsWarning, match="job 7: 5,000 GPUs") as warned:
        study = gd.Study(typo, horizon=4, lead_time="2D")
    assert warned[0].filename == __file__
    (said,) = study.source.unlikely()
    assert "(job 7: 5,000 GPUs); they count as held. Correct" in said
    with pytest.warns(gd.UnlikelyJobsWarning):
        gd.Study(changed(submit="2036-01-01", start="2036-01-01", end="2036-01-01"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gd.Study(changed(submit="2036-01-01", start="2036-01-01", end="2036-01-01"), until=LOG["end"].max())


@pytest.mark.parametrize("word", [None, "abgebrochen"])
def test_jobs_that_gave_up_in_other_words_are_named(tmp_path, word):
    jobs, _ = gd.make_cluster(n_users=5, n_days=30, random_state=0)
    never = jobs.index[10:30]
    jobs["start"] = jobs["start"].mask(jobs.index.isin(never))
    jobs["status"] = jobs["status"].astype(object).mask(jobs.index.isin(never), word)
    jobs.to_csv(tmp_path / "log.csv", index=False)
    with pytest.warns(UserWarning, match="20 of .* jobs are over without a start or a known status"):
        read = gd.read_jobs(tmp_path / "log.csv")
    assert sum("without a start" in sentence for sentence in gd.Study(read).source.unlikely()) == 1
    jobs.loc[never, "status"] = "cancelled"
    jobs.to_csv(tmp_path / "log.csv", index=False)
    assert sentences(gd.read_jobs(tmp_path / "log.csv")) == []


def test_jobs_without_a_number_of_gpus_are_named():
    few = LOG.assign(gpus=LOG["gpus"].mask(LOG.index < 7))
    assert [text for text in sentences(check_jobs(few, allow_unknown=True)) if "no number of GPUs" in text]


def test_a_table_without_an_end_is_named_unless_it_says_that_its_jobs_run():
    snapshot = LOG.assign(end=pd.NaT, status=None)
    (text,) = sentences(check_jobs(snapshot, allow_unknown=True))
    assert text.startswith("no job of this table has an end, so 320 of 320 jobs count as running")
    assert sentences(check_jobs(snapshot.assign(status="running"), allow_unknown=True)) == []


@pytest.mark.parametrize(("days", "paused", "named"), [(5, 0, False), (27, 0, False), (29, 0, True), (29, 40, False)])
def test_a_period_that_goes_on_for_a_window_without_a_record_is_named(days, paused, named):
    pause = pd.Timedelta(days=paused) * (LOG.index < len(LOG) // 2).astype(int)
    log = LOG.assign(**{name: LOG[name] - pause for name in ("submit", "start", "end")})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gd.Study(log, until=LOG["end"].max() + pd.Timedelta(days=days))
    assert [f"is {days} days after the last time of this log" in str(each.message) for each in caught] == [True] * named


def test_a_cluster_that_is_quiet_and_a_snapshot_of_what_runs_are_no_silence():
    later = LOG["end"].max() + pd.Timedelta("50D")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gd.Study(LOG.assign(cluster="alpha"), cluster="alpha", until=later)
        gd.Study(LOG.head(40).assign(end=pd.NaT, status="running"), until=later)


def test_simulated_clusters_are_ordinary():
    for seed in range(3):
        jobs, _ = gd.make_cluster(n_users=8, n_days=40, random_state=seed)
        assert sentences(jobs) == sentences(jobs.head(20)) == []
    assert sentences(gd.load_jobs_sample()) == []


@pytest.mark.parametrize(
    ("log", "form", "says"),
    [
        (PHILLY, "philly-pollux", {"tz": "UTC"}),
        (VENUS, "simulator", VENUS_START),
        (PAI, "simulator", ANY_START),
        (GENAI, "genai", {"tz": "UTC"}),
        (DLRM, "dlrm", ANY_START),
        (KTH, "swf", {}),
        (ATLAS, "swf", {}),
        ("alibaba-gpu-v2023/openb_pod_list_default.csv.gz", "openb", ANY_START),
        ("dirlab-gen-parallel/philly_data_training.csv.gz", "dirlab", {"origin": "2017-08-07 10:03:01+00:00"}),
        ("dirlab-gen-parallel/helios_data_training.csv.gz", "dirlab", VENUS_START),
    ],
)
def test_real_logs_are_ordinary(shared_data, log, form, says):
    jobs = check_jobs(gd.read_jobs(shared_data / "traces" / log, form, **says), allow_unknown=True)
    assert sentences(jobs) == []
    users = jobs["user"].dropna().unique()[:40]
    assert [user for user in users if sentences(jobs[jobs["user"] == user])] == []
