"""The report as a whole: page, figures, tables."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.report.build import build_report
from gpudemand.report.text import HELD_AT_ONCE
from gpudemand.study.study import Study
from tests.report.conftest import HOSTILE, make_log, renamed

HEADINGS = [
    "Job log",
    "Usage by users",
    "Usage over time",
    "Waits",
    "User segments",
    "Demand forecast",
    "Forecast by part",
    "Capacity plan",
    "What changed",
    "Scenarios",
    "Backtest and limitations",
]
FIGURES = {"outlook", "usage", "week", "waits", "segments", "forecast", "forecast_peak", "parts", "plan", "exceedance"}
FIGURES |= {"backtest"}
#: The others have several axes.
WITH_AXIS = FIGURES - {"week", "segments"}
TABLES = {"usage_shares", "concentration", "gpu_types", "slices", "segments", "models", "parts", "plan_summary", "risk"}
TABLES |= {
    "waits",
    "orders",
    "drivers",
    "purchase_mix",
    "scenarios",
    "rejected",
    "gpu_type_plans",
    "periods",
    "targets",
    "wait_plan",
    "requirement_steps",
}


class Page(HTMLParser):
    """Elements, addresses and words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.text: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.ids |= {value for name, value in attrs if name == "id"}

    def handle_data(self, data):
        self.text.append(data)
        if self.tags and self.tags[-1] == "td":
            self.cells.append(data.strip())


@pytest.fixture(scope="module")
def html(built):
    return (built / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_page_has_every_section_figure_and_table(page, html):
    assert re.findall(r"<h2>(.*?)</h2>", html) == HEADINGS
    assert {f"figure-{name}" for name in FIGURES} <= page.ids
    assert {f"table-{name}" for name in TABLES} <= page.ids
    assert page.tags.count("table") == len(TABLES) + 1  # that of a period, whose rows a script fills
    assert page.tags.count("caption") == len(TABLES) + 1
    assert 'class="skipped"' not in html


def test_the_first_figure_ends_within_400_words(html):
    first = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", html[: html.index("</figure>")], flags=re.DOTALL)
    words = re.sub(r"<[^>]+>", " ", first).split()
    assert "requires" in words
    assert "order" in words
    assert len(words) <= 400


def test_page_is_self_contained(page, html):
    assert page.tags.count("script") == 3
    assert not re.search(r"<script[^>]* src", html)
    assert "link" not in page.tags
    assert page.tags.count("svg") == len(FIGURES) + len(WITH_AXIS)
    assert not [address for address in page.addresses if ":" in address or address.startswith("/")]


def test_page_has_no_external_address(html):
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?https?:""", html)
    assert "@import" not in html
    assert "@media print" in html


def test_links_resolve_to_files(built, page):
    for address in page.addresses:
        if address.startswith("#"):
            assert address[1:] in page.ids, address
        else:
            assert (built / address).is_file(), address


def test_each_number_of_the_first_screen_links_to_its_reason(built, html):
    stats = re.findall(r'<dd><a href="#([\w-]+)">([^<]+)</a></dd><dt>([^<]+)</dt><dd class="about">([^<]+)</dd>', html)
    assert [name for *_, name, _ in stats] == [
        "GPUs required",
        "GPUs held at once",
        "risk without an order",
        "order by",
    ]
    for anchor, value, _, note in stats:
        there = re.findall(r">([^<>]+)<", html[html.index(f'id="{anchor}"') :])[:200]
        numbers = re.findall(r"between ([\d,]+) and ([\d,]+)", note)
        assert {value, *(numbers[0] if numbers else ())} - {"none", "now"} <= {*map(str.strip, there)}, anchor
    steps = pd.read_parquet(built / "tables" / "requirement_steps.parquet").set_index("step")["gpus"]
    numbers = json.loads((built / "headline.json").read_text(encoding="utf-8"))
    assert steps["suffice with probability 95%"] == numbers["required"]
    assert steps["suffice with probability 5%"] == numbers["required_lo"]
    assert steps["needed in the last four weeks"] > 0


def test_no_line_of_the_headline_ends_between_a_number_and_what_it_counts(html):
    head = re.search(r"<h1>(.*?)</h1>", html)[1]
    assert not re.search(r"\d (h|GPUs?|min|[A-Z][a-z]{2}|20\d\d)\b", head)
    assert "\N{NO-BREAK SPACE}GPU" in head


def test_user_supplied_text_is_escaped_and_truncated(html, page):
    assert html.count("<script") == 3
    assert """http-equiv="Content-Security-Policy" content="default-src 'none';""" in html
    assert "unsafe-eval" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "&lt;i&gt;bad&lt;/i&gt;" in html
    assert "y" * 41 not in html
    assert "i" not in page.tags
    assert "b" not in page.tags


def test_the_y_axis_of_a_figure_stays_where_a_narrow_page_scrolls_it(html):
    axes = re.findall(r'<svg class="axis"[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*><use href="#(\w+)-figure_1"/>', html)
    assert {name for _, _, name in axes} == WITH_AXIS
    for width, height, name in axes:
        shown = html[html.index(f'<figure id="figure-{name}"') :]
        assert f'viewBox="0 0 720 {height}' in shown[: shown.index("</figure>")]
        frame = re.search(rf'id="{name}-patch_2">\s*<path d="M ([\d.]+) ', shown)
        assert float(frame[1]) == pytest.approx(float(width), abs=0.01)  # up to the left edge of the axes


def test_figures_are_svg_and_png_and_state_the_data_kind(built):
    names = {path.name for path in (built / "figures").iterdir()}
    assert names == {f"{name}.{ending}" for name in FIGURES for ending in ("svg", "png")}
    for name in FIGURES:
        svg = (built / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert 'id="data-kind"' in svg
        assert ">synthetic<" in svg


def test_csv_equals_parquet(built):
    stems = {path.stem for path in (built / "tables").iterdir()}
    assert len(stems) >= 12
    for stem in stems:
        parquet = pd.read_parquet(built / "tables" / f"{stem}.parquet")
        csv = pd.read_csv(built / "tables" / f"{stem}.csv", keep_default_na=False, na_values=[""])
        assert list(csv.columns) == list(parquet.columns), stem
        assert len(csv) == len(parquet), stem
        for name in parquet.columns:
            _assert_same(csv[name], parquet[name])


def _assert_same(csv: pd.Series, parquet: pd.Series) -> None:
    if pd.api.types.is_datetime64_any_dtype(parquet.dtype):
        read = pd.to_datetime(csv, utc=True, format="ISO8601").astype("datetime64[ns, UTC]")
        assert (read.isna() == parquet.isna()).all()
        assert (read.dropna() == parquet.dropna()).all()
    elif pd.api.types.is_numeric_dtype(parquet.dtype) and not pd.api.types.is_bool_dtype(parquet.dtype):
        np.testing.assert_allclose(csv.astype(float), parquet.astype(float), rtol=1e-12)
    else:
        # An all-missing text column is read from CSV as floats.
        assert _texts(csv) == _texts(parquet)


def _texts(column: pd.Series) -> list[str]:
    return ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def test_every_number_of_the_headline_is_in_a_table(built, page):
    numbers = json.loads((built / "headline.json").read_text(encoding="utf-8"))
    for name in ("required", "installed"):
        assert f"{numbers[name]:,.0f}" in page.cells, name
    for name in ("wape", "best_naive_wape", "coverage_80", "coverage_95"):
        assert f"{100 * numbers[name]:.1f}%" in page.cells, name
    assert numbers["model"] in page.cells
    assert numbers["best_naive"] in page.cells
    plan = pd.read_parquet(built / "tables" / "plan_summary.parquet")
    assert numbers["required"] == plan.set_index("basis").loc["wait", "required"]
    periods = pd.read_parquet(built / "tables" / "periods.parquet")
    assert numbers["required"] == periods["required"].iloc[0]
    assert numbers["risk_without_order"] == pytest.approx(periods["risk"].iloc[0])
    risk = pd.read_parquet(built / "tables" / "risk.parquet")
    assert [numbers[f"required_p{p}"] for p in (50, 90, 95, 99)] == risk["required"].tolist()
    assert numbers["required"] == numbers["required_p95"]


def test_installed_defaults_to_the_maximum_held_and_the_page_states_it(built, html):
    numbers = json.loads((built / "headline.json").read_text(encoding="utf-8"))
    usage = pd.read_parquet(built / "tables" / "log.parquet")
    assert numbers["installed"] <= usage["max_held"].iloc[0]
    assert float(numbers["installed"]).is_integer()
    assert numbers["shortfall"] == max(numbers["required"] - numbers["installed"], 0)
    assert numbers["installed_from"] == "log"
    assert f"not given; {HELD_AT_ONCE} is taken for it" in html


def test_usage_shares_are_complete_and_sum_to_the_total(built, log):
    shares = pd.read_parquet(built / "tables" / "usage_shares.parquet")
    assert set(shares["user"]) == set(HOSTILE) | {f"user-{i}" for i in range(5)}
    held = (log["end"] - log["start"]).dt.total_seconds() / 3600 * log["gpus"]
    assert shares["gpu_hours"].sum() == pytest.approx(held.sum())
    assert shares["jobs"].sum() == len(log)
    assert shares["share"].sum() == pytest.approx(1)
    assert shares["cumulative_share"].is_monotonic_increasing


@pytest.mark.slow
def test_the_same_study_gives_the_same_report(study, built, tmp_path):
    """Stages are computed anew by `tests.test_same_bytes`."""
    again = study.report(tmp_path / "again").parent
    for path in built.rglob("*.*"):
        assert (again / path.relative_to(built)).read_bytes() == path.read_bytes(), path.name


@pytest.mark.usefixtures("quick", "undrawn_here", "brief")
def test_ample_installed_capacity_needs_no_order(tmp_path):
    log = renamed(make_log(days=40), gpu_type="A100")
    index = build_report(log, tmp_path, horizon=7, installed=5000, by="group", tz="Europe/Berlin", service_level=0.99)
    numbers = json.loads((index.parent / "headline.json").read_text(encoding="utf-8"))
    assert (numbers["shortfall"], numbers["first_crossing"], numbers["order_by"]) == (0, None, None)
    assert numbers["installed_from"] == "given"
    text = index.read_text(encoding="utf-8")
    assert "no more than the 5,000 installed" in text
    assert "&lt;/td&gt;text" in text


@pytest.mark.slow
def test_until_cuts_off_later_jobs(quick, log):
    study = Study(log, horizon=7, until="2026-03-01")
    (jobs,) = study.usage_tables.tables["log"]["jobs"]
    assert jobs == (log["start"] <= pd.Timestamp("2026-03-01", tz="UTC")).sum()
    assert study.selected.forecast["ds"].max() == pd.Timestamp("2026-03-07", tz="UTC")


def test_too_short_a_history_names_a_horizon_that_fits(log, tmp_path):
    with pytest.raises(
        InputError, match=r"horizon 60 needs at least 148 bins of history; the log has \d+; use --horizon"
    ):
        build_report(log, tmp_path, horizon=60)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"by": "usr"}, "Did you mean 'user'"),
        ({"horizon": 0}, "horizon"),
        ({"installed": -1}, "installed"),
        ({"target_utilization": 1.2}, "target_utilization"),
        ({"service_level": 0.4}, "service_level"),
        ({"lead_time": "soon"}, "length of time"),
        ({"lead_time": "-5D"}, "must not be negative"),
        ({"tz": "Mars/Olympus"}, "time zone"),
        ({"freq": "fortnight"}, "freq"),
        ({"prices": 2.0}, "prices must be two numbers"),
        ({"prices": (1.0, 0)}, "on demand"),
        ({"prices": (4.0, 1.0)}, "the reserved price comes first"),
    ],
)
def test_wrong_parameters_are_named_before_anything_is_written(log, tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        build_report(log, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_a_log_without_gpus_is_refused(log, tmp_path):
    idle = log.assign(gpus=0.0)
    with pytest.raises(InputError, match="no job of this log held a GPU"):
        build_report(idle, tmp_path)
