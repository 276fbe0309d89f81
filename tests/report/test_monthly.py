"""Two monthly reports on a store whose demand is known: what the second says of the first one's forecast."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand.cli.app import app
from gpudemand.pull.slurm import pull_slurm

HEADER = "JobIDRaw|JobID|Cluster|User|Account|Submit|Start|End|State|ReqTRES|AllocTRES"
DECEMBER, MARCH, APRIL = (pd.Timestamp(day, tz="UTC") for day in ("2025-12-01", "2026-03-01", "2026-04-01"))
PLAN = 'log = "store"\nhorizon = 31\nlead_time = "14D"\ninstalled = 64\nby = "total"\n'


def demand(day: pd.Timestamp) -> int:
    """GPUs held all day: 40 on weekdays and 20 at weekends; in March 50 on weekdays."""
    if day.day_of_week > 4:
        return 20
    return 40 if day < MARCH else 50


def dump(begin: pd.Timestamp, end: pd.Timestamp, place) -> None:
    """What sacct prints of two users who share the demand of each day, a quarter and the rest."""
    rows = [HEADER]
    for day in pd.date_range(begin, end, inclusive="left"):
        for user, gpus in (("ada", demand(day) // 4), ("bob", demand(day) - demand(day) // 4)):
            start, job = int(day.timestamp()), f"{day:%y%m%d}{len(rows)}"
            times = f"{start}|{start}|{start + 86400}"
            rows.append(f"{job}|{job}|alps|{user}|lab|{times}|COMPLETED||gres/gpu={gpus}")
    place.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def march(tmp_path_factory, quick_module, undrawn, brief_module):
    """Folder of the report on March, written over that on February, each after a pull."""
    tmp_path = tmp_path_factory.mktemp("monthly")
    (tmp_path / "plan.toml").write_text(PLAN)
    for begin, end in ((DECEMBER, MARCH), (MARCH, APRIL)):
        dump(begin, end, tmp_path / "dump.psv")
        pull_slurm(tmp_path / "store", files=[tmp_path / "dump.psv"])
        result = CliRunner().invoke(app, ["report", "--plan", str(tmp_path / "plan.toml"), "--quiet"])
        assert result.exit_code == 0, result.stderr
    return tmp_path / "gpudemand-report"


@pytest.mark.slow
def test_the_score_is_that_of_what_was_forecast_on_what_came(march):
    days = pd.date_range(MARCH, APRIL, inclusive="left")
    weekday = days.day_of_week < 5
    # February says 40 and 20, its last day is a Saturday; 22 weekdays of 50 and nine weekend days of 20 came.
    assert (MARCH - pd.Timedelta("1D")).day_name() == "Saturday"
    came, forecast = 22 * 50 + 9 * 20, 22 * 40 + 9 * 20
    since = json.loads((march / "report.json").read_text())["since"]
    assert pd.Timestamp(since["log_end"]) == MARCH
    own, last = (row for row in since["forecast"] if row["series"] == "mean")
    assert (own["bins"], last["bins"]) == (31, 31)
    assert own["mean_actual"] == last["mean_actual"] == pytest.approx(came / 31)
    assert own["mean_forecast"] == pytest.approx(forecast / 31)
    assert own["wape_since"] == pytest.approx(22 * 10 / came)
    assert own["bias"] == pytest.approx(-22 * 10 / came)
    assert last["mean_forecast"] == 20
    assert (last["wape_since"], last["bias"]) == (pytest.approx(22 * 30 / came), pytest.approx(-22 * 30 / came))
    table = pd.read_parquet(march / "tables" / "since_forecast.parquet").query("unique_id == 'mean'")
    assert table["ds"].tolist() == days.tolist()
    assert table["y"].tolist() == [50 if work else 20 for work in weekday]
    model = own["model"]
    assert table[model].to_numpy() == pytest.approx([40 if work else 20 for work in weekday])
    inside = table["y"].between(table[f"{model}-lo-80"], table[f"{model}-hi-80"])
    assert not inside[weekday].any()
    assert own["coverage_80"] == inside.mean()


@pytest.mark.slow
def test_the_page_says_it(march):
    page = (march / "index.html").read_text()
    assert (
        "Of the 31 bins since 1 Mar 2026 a mean of 34 GPUs was forecast, and 41 came: WAPE 17.2% "
        "(last value 51.6%), bias -17.2%"
    ) in page
    assert "Since the report of 1 Mar 2026" in page
