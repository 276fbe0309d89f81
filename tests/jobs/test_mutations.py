"""Whatever happens to a log: it is refused in one sentence, or every line of it is a job or counted as refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudemand._validation import InputError
from gpudemand.jobs import read_jobs
from gpudemand.usage import usage_series
from tests.jobs.mutations import LOGS, USAGE, check_jobs_of, check_usage_of, gpu_seconds, mutate, rows_by_line
from tests.tiers import slow_beside

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
# The same examples in every run; `tests/fuzz` looks for others.
damaged = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 2**32 - 1)
#: Logs that are read in ways of their own: quotes, pipes, comments, JSON, no header, times that are sums of lines. The
#: others are tables of commas, whose columns are named otherwise.
UNLIKE = ("canonical-quoted", "sacct", "swf", "philly", "pai", "dirlab")
every_format = pytest.mark.parametrize("name", slow_beside(UNLIKE, LOGS))


@every_format
def test_every_line_is_a_job_or_counted_or_the_log_is_refused(name: str, tmp_path: Path) -> None:
    @damaged
    @given(seeds)
    def check(seed: int) -> None:
        check_jobs_of(name, mutate(LOGS[name][1], seed), tmp_path)

    check()


@every_format
def test_the_total_is_the_sum_over_the_accepted_rows(name: str, tmp_path: Path) -> None:
    @settings(damaged, max_examples=5)
    @given(seeds)
    def check(seed: int) -> None:
        jobs = check_jobs_of(name, mutate(LOGS[name][1], seed), tmp_path)
        if jobs is not None and jobs["end"].notna().all():
            hours = usage_series(jobs, by=None, freq="YS")["y"].sum()
            assert hours * 3600 == pytest.approx(gpu_seconds(jobs).sum(), rel=1e-9, abs=1e-3)

    check()


@pytest.mark.parametrize("name", USAGE)
def test_damaged_usage(name: str, tmp_path: Path) -> None:
    @damaged
    @given(seeds)
    def check(seed: int) -> None:
        check_usage_of(name, mutate(USAGE[name], seed), tmp_path)

    check()


@pytest.mark.slow
def test_a_file_queried_in_place_gives_what_the_reader_gives(tmp_path: Path) -> None:
    @damaged
    @given(seeds)
    def check(seed: int) -> None:
        path = tmp_path / "log.csv"
        path.write_bytes(mutate(LOGS["canonical-quoted"][1], seed))
        try:
            in_place = usage_series(path, by=None, freq="YS")["y"].sum()
        except InputError:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loaded = usage_series(read_jobs(path), by=None, freq="YS")["y"].sum()
        assert in_place == pytest.approx(loaded)

    check()


@pytest.mark.slow
def test_the_damage_is_real(tmp_path: Path) -> None:
    """Of 30 damaged logs some are refused and some are read, most of them with fewer rows."""
    found = [check_jobs_of("canonical", mutate(LOGS["canonical"][1], seed), tmp_path) for seed in range(30)]
    read = [jobs for jobs in found if jobs is not None]
    assert 3 < len(read) < 27
    assert sum(len(jobs) < 7 for jobs in read) > 6
    assert len(rows_by_line("canonical", tmp_path)) == 7
