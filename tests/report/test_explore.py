"""What the page can be asked: its numbers are those of the study, and names cannot leave their place."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.plotting.base import GROUPS, LINES
from gpudemand.report.explore import as_json, explore
from tests.report.conftest import HOSTILE


@pytest.fixture(scope="module")
def html(built):
    return (built / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def panels(html):
    return json.loads(re.search(r'<script type="application/json" id="panels">(.*?)</script>', html, re.DOTALL)[1])


def read(built, name):
    return pd.read_parquet(built / "tables" / f"{name}.parquet")


def places(panel):
    return {choice["name"]: choice["options"] for choice in panel["choices"]}


def test_every_requirement_is_that_of_the_grid_and_the_stated_one_that_of_the_plan(panels, built):
    outlook, grid, plan = panels["outlook"], read(built, "target_grid"), read(built, "plan")
    options = places(outlook)
    assert options["wait"] == ["10 min", "1 h", "4 h", "24 h"]
    assert len(grid) == len(options["wait"]) * len(options["share"]) * len(options["level"])
    arrival = read(built, "periods")["begin"].iloc[0].tz_localize(None)
    before = [pd.Timestamp(time, unit="s") <= arrival for time in outlook["required"]["x"]]
    said, lines = np.array(outlook["said"]).ravel(), np.array(outlook["required"]["y"]).reshape(len(grid), -1)
    for row, sentence, line in zip(grid.itertuples(), said, lines, strict=True):
        goal = f"{100 * row.share:.0f}% of the jobs start within {row.wait.replace('h', ' h').replace('min', ' min')}"
        assert goal in sentence
        assert (
            f"with probability {100 * row.probability:.0f}%, this cluster requires {row.required:.0f} GPU" in sentence
        )
        assert line[before][-1] == row.required
    stated = plan[plan["basis"] == "wait"].set_index("ds")["required"].tz_localize(None)
    chosen = [choice["chosen"] for choice in outlook["choices"]]
    line = pd.Series(
        outlook["required"]["y"][chosen[0]][chosen[1]][chosen[2]], pd.to_datetime(outlook["required"]["x"], unit="s")
    )
    assert (line.reindex(stated.index.floor("s"), method="ffill").to_numpy() == stated.to_numpy()).all()


def test_an_order_is_what_the_table_of_orders_says(panels, built):
    orders = read(built, "orders")
    assert len(panels["outlook"]["orders"]) == len(orders)
    for row, said in zip(orders.itertuples(), panels["outlook"]["orders"], strict=True):
        assert f"{row.share_in_time:.0%} of the jobs in time" in said
        assert f"{row.idle_share:.0%} of the GPUs idle" in said
        assert f"a cost of {row.cost:,.0f}" in said


def test_demand_by_day_is_that_of_the_log(panels, log):
    demand = panels["demand"]
    usage = gd.to_wide(gd.usage_series(log, by="user", value="wanted")).rename(lambda name: name.replace("%2F", "/"))
    by = places(demand)["by"].index("user")
    answer = demand["answers"][by]
    for name, days in zip(answer["names"], answer["y"], strict=True):
        long = next((each for each in HOSTILE if len(each) > 40 and each.startswith(name[:39])), name)
        np.testing.assert_allclose(days, usage.loc[long].iloc[: len(days)], atol=0.0051)
    np.testing.assert_allclose(demand["total"], usage.sum().iloc[: len(demand["total"])], atol=0.0051)


def test_rows_of_a_period_are_of_the_table_and_its_last_days_are_those_of_the_drivers(panels, built):
    table, demand = read(built, "demand_by_period"), panels["demand"]
    period = table["period"].unique().tolist()
    assert places(demand)["period"] == period
    for number, name in enumerate(period):
        rows = table[(table["by"] == "user") & (table["period"] == name)]
        shown = demand["answers"][places(demand)["by"].index("user")]["rows"][number]
        assert [row[2] for row in shown[:10]] == [f"{gpus:,.1f}" for gpus in rows["gpus"].head(10)]
        assert rows["share"].sum() == pytest.approx(1)
    drivers = read(built, "drivers").iloc[0]
    last = table[(table["by"] == "user") & (table["period"] == "last 28 days")]
    assert last["gpus"].sum() == pytest.approx(drivers["after"])
    assert last["change_gpus"].sum() == pytest.approx(drivers["change_gpus"])


def test_names_that_would_end_the_element_do_not(html):
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", html, re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [' type="application/json" id="panels"', "", ""]
    assert "<script>alert(1)</script>" in json.loads(scripts[0][1])["demand"]["answers"][0]["names"]
    assert "<" not in scripts[0][1]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in scripts[1:]]
    policy = re.search(r'content="(default-src[^"]*)"', html)[1]
    assert re.search(r"script-src ([^;]*)", policy)[1].split() == [f"'sha256-{each}'" for each in hashes]
    assert json.loads(as_json({"a": "</script><!--\u2028"})) == {"a": "</script><!--\u2028"}


@pytest.mark.slow
def test_a_log_of_few_days_and_usage_without_jobs_have_what_they_allow(quick, log):
    usage = gd.usage_series(log, by="group", value="gpus")
    study = gd.Study(usage, horizon=7, by="group")
    tables = {"orders": study.orders, "demand_by_period": study.demand_by_period}
    panels = explore(study, tables)
    assert set(places(panels["outlook"])) == {"level", "order"}
    assert places(panels["demand"])["by"] == ["group"]
    assert "To hold what is wanted at once" in panels["outlook"]["said"][0][0][0]


def test_lines_stand_out_from_the_paper():
    def luminance(color):
        parts = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(parts <= 0.04, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    assert min(1.05 / (luminance(color) + 0.05) for color in LINES) >= 3
    assert max(luminance(color) for color in GROUPS) > 0.5  # areas, which have neighbours, may be lighter


def test_targets_are_named_as_on_the_buttons(html, panels):
    table = re.search(r'<table id="table-targets".*?</table>', html, re.DOTALL)[0]
    waits = panels["outlook"]["choices"][0]["options"]
    assert re.findall(r"<td[^>]*>\s*([\d.]+ \w+)\s*</td>", table) == waits
