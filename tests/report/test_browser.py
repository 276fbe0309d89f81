"""The page as a browser sees it."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

import gpudemand.report
from gpudemand.study.study import Study
from tests.report.conftest import make_log
from tests.report.test_build import FIGURES, HEADINGS, TABLES

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the PATH"),
]


def browse(built, profile, *flags):
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", *flags, (built / "index.html").as_uri()]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout.decode("utf-8")


def test_document_has_headings_figures_and_tables(built, tmp_path):
    document = browse(built, tmp_path, "--dump-dom")
    assert re.findall(r"<h2>(.*?)</h2>", document) == HEADINGS
    assert len(re.findall(r"<svg role=\"img\"", document)) == len(FIGURES)
    charts = 2
    assert document.count("<table") == len(TABLES) + 1 + charts  # of a period, and the legends of charts
    assert document.count("<script") == 3


@pytest.mark.parametrize("width", [800, 1400])
def test_screenshot_is_taken_at_both_widths(built, tmp_path, width):
    shot = tmp_path / "page.png"
    browse(built, tmp_path / "profile", f"--screenshot={shot}", f"--window-size={width},3000")
    from matplotlib.image import imread

    pixels = imread(shot)
    assert pixels.shape[:2] == (3000, width)
    # Ink at the right edge: content wider than the page.
    assert (pixels[:, -8:, :3] > 0.99).all()
    assert (pixels[..., :3] < 0.3).any()


@pytest.mark.parametrize("policy", [False, True])
def test_no_rule_of_a_style_fetches_anything(tmp_path, policy):
    """Each of these passes the look at the style; without the policy of the page, the browser asks for all."""
    asked = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    template = (Path(gpudemand.report.__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
    meta = re.search(r"<meta http-equiv.*", template)[0] if policy else ""
    with ThreadingHTTPServer(("127.0.0.1", 0), Listening) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_address[1]}"
        rules = [rf"@\69mport '{place}/import';", rf"body {{ background: u\72l({place}/url) }}"]
        rules.append(f'p {{ background: -webkit-image-set("{place}/set" 1x) }}')
        page = f'<!DOCTYPE html><meta charset="utf-8">{meta}<style>{" ".join(rules)}</style><p>text</p>'
        (tmp_path / "index.html").write_text(page, encoding="utf-8")
        browse(tmp_path, tmp_path / "profile", "--dump-dom")
        server.shutdown()
    assert set(asked) == (set() if policy else {"/import", "/url", "/set"})


@pytest.fixture(scope="module")
def short(quick_module, tmp_path_factory):
    """Folder of a report that says to order."""
    out = tmp_path_factory.mktemp("short") / "out"
    return Study(make_log(), horizon=14, installed=30, lead_time="14D").report(out).parent


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open a report in a browser without a network; what the page asks for and complains of is listed."""
    contexts, asked = [], []

    def visit(folder, **options):
        contexts.append(chromium.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: asked.append(message.text))
        page.on("pageerror", lambda error: asked.append(str(error)))
        page.goto((folder / "index.html").as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert all(each.endswith("/index.html") for each in asked), asked


def answer(page, panel, *clicks, part=".said"):
    """Text of a panel after at most three clicks on what can be seen."""
    assert len(clicks) <= 3
    for click in clicks:
        inside, anywhere = (
            place.get_by_text(click, exact=True).locator("visible=true")
            for place in (page.locator(f"#explore-{panel}"), page)
        )
        (inside if inside.count() else anywhere).first.click()
    return page.locator(f"#explore-{panel} {part}").inner_text()


def read(folder, name):
    return pd.read_parquet(folder / "tables" / f"{name}.parquet")


def test_three_clicks_tell_who_drives_the_last_month(visit, short):
    table = read(short, "demand_by_period")
    month = table[table["by"] == "user"]["period"].unique()[2]
    first = table[(table["by"] == "group") & (table["period"] == month)].iloc[0]
    page = visit(short)
    said = answer(page, "demand", "Who drives demand?", "group", month)
    assert said.startswith(month)
    assert f"Most by group {first['name']} ({first['share']:.0%})" in said
    rows = page.locator("#explore-demand .answer tbody tr").all_inner_texts()
    assert rows[0].split() == [
        first["name"],
        f"{first['gpus']:.1f}",
        f"{first['share']:.1%}",
        f"{first['change_gpus']:+.1f}",
    ]


def test_one_click_tells_what_a_wait_of_four_hours_takes(visit, short):
    grid = read(short, "target_grid").set_index(["wait", "share", "probability"])["required"]
    page = visit(short)
    assert grid["4h", 0.9, 0.95] < grid["1h", 0.9, 0.95]
    said = answer(page, "outlook", "4 h")
    assert "90% of the jobs start within 4 h from 25 May 2026 on, with probability 95%, this cluster" in said
    assert f"requires {grid['4h', 0.9, 0.95]:.0f} GPUs" in said
    assert f"requires {grid['4h', 0.8, 0.99]:.0f} GPUs" in answer(page, "outlook", "80%", "99%")


def test_the_page_tells_what_doing_nothing_leads_to_and_what_an_order_changes(visit, short):
    orders = read(short, "orders")
    page = visit(short)
    chart = page.locator("#explore-outlook canvas")
    still = chart.screenshot()
    for row, label, words in zip(
        orders.itertuples(), ("none", f"{orders['order'][1]} now"), ("Without an order", "ordered now"), strict=False
    ):
        said = answer(page, "outlook", label, part=".leads")
        assert words in said
        assert f"with probability {row.risk:.0%}" in said
        assert f"{row.share_in_time:.0%} of the jobs in time" in said
    assert orders["risk"][1] < orders["risk"][0]
    assert chart.screenshot() != still


def test_keys_choose_read_and_zoom(visit, short):
    page = visit(short)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#explore-outlook input[name$=wait]:checked").focus()
    assert page.locator("#explore-outlook .said").inner_text() == ""  # the headline says it
    page.keyboard.press("ArrowRight")
    assert "within 4 h" in page.locator("#explore-outlook .said").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#explore-outlook .said").inner_text() == ""
    page.keyboard.press("ArrowRight")
    chart, canvas = page.locator("#explore-outlook .chart"), page.locator("#explore-outlook canvas")
    chart.focus()
    page.keyboard.press("0")
    whole = canvas.evaluate("canvas => canvas.toDataURL()")
    page.keyboard.press("ArrowLeft")
    spoken = page.locator("#explore-outlook .spoken").inner_text()
    assert re.fullmatch(r"day \d+ \w{3} 2026, wanted [\d.]+, held [\d.]+", spoken)  # no forecast of another day
    page.keyboard.press("+")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != whole
    page.keyboard.press("0")
    assert canvas.evaluate("canvas => canvas.toDataURL()") == whole


def test_a_mouse_reads_and_zooms_and_names_are_marked(visit, short):
    page = visit(short)
    chart = page.locator("#explore-demand .u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    values = page.locator("#explore-demand .u-value").all_inner_texts()
    assert "\N{EN DASH}" not in values
    canvas = page.locator("#explore-demand canvas")
    whole = canvas.evaluate("canvas => canvas.toDataURL()")
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 50)
    page.mouse.up()
    assert canvas.evaluate("canvas => canvas.toDataURL()") != whole
    assert len(values) == 2 + 5  # the day, all, and five names
    page.locator("#explore-demand .answer tbody input").nth(6).check()
    assert page.locator("#explore-demand .u-value").count() == 2 + 6


def test_without_scripts_and_in_print_the_still_page_is_seen(visit, short):
    for page in (visit(short, java_script_enabled=False), visit(short)):
        page.emulate_media(media="print" if page.locator("html.live").count() else "screen")
        assert page.locator("#figure-outlook svg[role=img]").is_visible()
        assert page.locator("#figure-usage svg[role=img]").is_visible()
        assert not page.locator("#explore-outlook").is_visible()
        assert not page.locator("#explore-demand").is_visible()
        assert len(page.pdf(format="A4")) > 50_000


def test_a_hostile_name_is_text(visit, built):
    page = visit(built)
    names = page.locator("#explore-demand .answer tbody").inner_text()
    assert "<script>alert(1)</script>" in names
    assert page.locator("#explore-demand .answer tbody script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation_and_the_page_is_small(visit, built, short, width, scheme, capsys):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe, of the extra `test`").Axe()
    for folder in (built, short):
        page = visit(folder, viewport={"width": width, "height": 900}, color_scheme=scheme)
        live = axe.run(page).response["violations"]
        page.evaluate("document.documentElement.classList.remove('live')")
        still = axe.run(page).response["violations"]
        size = (folder / "index.html").stat().st_size
        with capsys.disabled():
            sizes = f"{size / 1e6:.2f} MB, axe: {len(live)} violations, {len(still)} without scripts"
            print(f"\n{folder.parent.name}, {width} wide, {scheme}: {sizes}")  # noqa: T201
        assert [each["id"] for each in live + still] == []
        assert size <= 3_000_000
