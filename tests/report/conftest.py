"""A small log with hostile names, and the report on it."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs
from gpudemand.report import figures
from gpudemand.study import selection as candidates
from gpudemand.study import study as stages
from gpudemand.study.requirement import plan_requirement
from gpudemand.study.study import Study
from gpudemand.study.waits import as_forecast, needed_gpus

NO_DRAWING = figures.Drawing(b"<svg></svg>", b"")
HOSTILE = ["<script>alert(1)</script>", "x_$<b>", "_under", "quote\"',;", "line\nbreak", "y" * 10_000, "张伟"]


def make_log(days: int = 130, per_day: int = 8, seed: int = 0) -> pd.DataFrame:
    """Jobs of twelve users over `days` days, more of them as time goes by."""
    rng = np.random.default_rng(seed)
    n = days * per_day
    submit = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.sort(rng.uniform(0, days * 24, n)), "h")
    start = submit + pd.to_timedelta(rng.exponential(0.5, n), "h")
    users = np.array([*HOSTILE, *(f"user-{i}" for i in range(5))], dtype=object)
    frame = pd.DataFrame(
        {
            "job_id": [str(i) for i in range(n)],
            "user": users[rng.integers(0, users.size, n)],
            "group": rng.choice(["vision", "</td>text"], n),
            "submit": submit,
            "start": start,
            "end": start + pd.to_timedelta(rng.lognormal(1.5, 0.6, n), "h"),
            "gpus": rng.choice([1.0, 2, 4, 8], n) * (1 + np.arange(n) / n),
            "gpu_type": rng.choice(["A100", "H100"], n),
            "status": rng.choice(["completed", "failed"], n, p=[0.8, 0.2]),
        }
    )
    frame.attrs["rejected"] = {"end before start": 3, "<i>bad</i>": 1}
    return as_jobs(frame, kind="synthetic", source="made for <the> tests")


def renamed(log: pd.DataFrame, **columns: object) -> pd.DataFrame:
    """The log with columns set to one value, or missing (None), in every row."""
    values = {name: pd.Series([value] * len(log), index=log.index, dtype=STRING) for name, value in columns.items()}
    out = log.assign(**values)
    out.attrs = dict(log.attrs)
    return out


@pytest.fixture(scope="session")
def log() -> pd.DataFrame:
    return make_log()


def _quick():
    """Leave naive methods alone, as others take most of the time, where forecasts are not under test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_MIN_COMBINATION_BINS", 10_000)
        patch.setattr(candidates, "CANDIDATES", (*candidates.NAIVE, *candidates.CANDIDATES[-2:]))
        yield


quick = pytest.fixture(_quick, name="quick")
quick_module = pytest.fixture(_quick, name="quick_module", scope="module")


@pytest.fixture(scope="module")
def selected_once():
    """Select a forecaster once for equal series and settings, where the selection is not under test."""
    select, known = stages.select_and_forecast, {}

    def select_once(*arguments):
        key = joblib.hash((arguments, candidates._MIN_COMBINATION_BINS, candidates.CANDIDATES))
        if key not in known:
            known[key] = select(*arguments)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "select_and_forecast", select_once)
        yield


def _undrawn():
    """Make the displays of reports, but draw none, where figures are not under test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_draw", lambda display, height: NO_DRAWING)
        yield


undrawn = pytest.fixture(_undrawn, name="undrawn", scope="module")
#: For modules in which other tests look at figures.
undrawn_here = pytest.fixture(_undrawn, name="undrawn_here")


def _brief():
    """Skip stages that take most of the time of a report, where a test looks at what does not rest on them."""

    def skip(*arguments):
        raise InputError("left out of this test.")

    with pytest.MonkeyPatch.context() as patch:
        for stage in ("segment_users", "forecast_parts", "plan_scenarios"):
            patch.setattr(stages, stage, skip)
        yield


brief = pytest.fixture(_brief, name="brief")
brief_module = pytest.fixture(_brief, name="brief_module", scope="module")


@pytest.fixture(scope="session")
def steps() -> list[str]:
    """Steps that the study of the log has reported."""
    return []


def requirement_of(source, selected, max_held=80.0):
    """The requirement of a job log, as `Study` plans it."""
    settings, mean = source.settings, selected.forecast[selected.forecast["unique_id"] == "mean"]
    needed = as_forecast(needed_gpus(source, (), settings), mean, settings.freq)
    return plan_requirement(pd.concat([mean, needed]), max_held, settings)


@pytest.fixture(scope="session")
def study(log, steps):
    return Study(log, horizon=14, prices=(1.25, 3), progress=steps.append)


@pytest.fixture(scope="session")
def built(study, steps, tmp_path_factory):
    """Folder of a finished report."""
    index = study.report(tmp_path_factory.mktemp("report") / "out")
    assert len(steps) == 9
    return index.parent
