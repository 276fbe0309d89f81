"""The page as a browser sees it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

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
