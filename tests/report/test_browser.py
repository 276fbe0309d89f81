"""The page as a browser sees it."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import gpudemand.report
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
    assert document.count("<table") == len(TABLES)
    assert "<script" not in document


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
