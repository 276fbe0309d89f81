"""The picture at the top of the README: ``python -m scripts.make_cover``, where a Chromium is installed.

Writes the report on the bundled sample, and a screenshot of its first screen to ``docs/report.png``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import gpudemand as gd

PLACE = Path(__file__).resolve().parent.parent / "docs" / "report.png"
WIDTH, HEIGHT = 1200, 900


def make_cover(place: Path) -> None:
    """Write the screenshot to `place`.

    Raises
    ------
    SystemExit
        If no Chromium or Chrome is on the path.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("make_cover: a Chromium or Chrome must be on the path.")
    with tempfile.TemporaryDirectory() as folder:
        gd.build_report(gd.load_jobs_sample(), folder)
        picture = Path(folder, "cover.png")
        size = f"--window-size={WIDTH},{HEIGHT}"
        page = Path(folder, "index.html").as_uri()
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={picture}"]
        subprocess.run([browser, *options, page], check=True, capture_output=True)
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(picture, place)


if __name__ == "__main__":
    make_cover(PLACE)
