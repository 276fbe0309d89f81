"""The picture at the top of the README: ``python -m scripts.make_cover``, where a Chromium is installed.

Writes the report on the bundled sample, then its headline and its figure of the plan to ``docs/report.png``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import gpudemand as gd
from gpudemand.cli.sample import SAMPLE, sample_log

PLACE = Path(__file__).resolve().parent.parent / "docs" / "report.png"
#: Pixels of the headline's screenshot, and of the margin around the figure.
WIDTH, HEIGHT, MARGIN = 1200, 435, 80


def make_cover(place: Path) -> None:
    """Write the picture to `place`.

    Raises
    ------
    SystemExit
        If no Chromium or Chrome is on the path.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("make_cover: a Chromium or Chrome must be on the path.")
    with tempfile.TemporaryDirectory() as folder:
        gd.build_report(sample_log(), folder, **SAMPLE)
        headline = Path(folder, "headline.png")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        page = Path(folder, "index.html").as_uri()
        subprocess.run([browser, *options, f"--screenshot={headline}", page], check=True, capture_output=True)
        place.parent.mkdir(exist_ok=True)
        stack(headline, Path(folder, "figures", "plan.png")).save(place, optimize=True)


def stack(headline: Path, figure: Path) -> Image.Image:
    """Put a figure below the headline, as wide as its text, on white."""
    top, below = Image.open(headline).convert("RGB"), Image.open(figure).convert("RGB")
    below = below.resize((WIDTH - 2 * MARGIN, (WIDTH - 2 * MARGIN) * below.height // below.width))
    picture = Image.new("RGB", (WIDTH, top.height + below.height + MARGIN // 2), "white")
    picture.paste(top, (0, 0))
    picture.paste(below, (MARGIN, top.height))
    return picture.quantize(64)


if __name__ == "__main__":
    make_cover(PLACE)
