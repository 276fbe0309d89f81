"""The picture at the top of the README: ``python -m scripts.make_cover``, where a Chromium is installed.

Writes the report on the bundled sample, then the top of its page to ``docs/report.png``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import gpudemand as gd
from gpudemand.cli.report import SAMPLE, sample_log

PLACE = Path(__file__).resolve().parent.parent / "docs" / "report.png"
#: Pixels of the headline, the choices and the figure of the plan.
WIDTH, HEIGHT = 1200, 1200


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
        picture = Path(folder, "page.png")
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}"]
        page = Path(folder, "index.html").as_uri()
        subprocess.run([browser, *options, f"--screenshot={picture}", page], check=True, capture_output=True)
        place.parent.mkdir(exist_ok=True)
        Image.open(picture).convert("RGB").quantize(64).save(place, optimize=True)


if __name__ == "__main__":
    make_cover(PLACE)
