"""Install the wheel with each extra into an empty environment of each Python, import what it brings, print a table.

    python -m scripts.test_extras [--python /usr/bin/python3.12 ...] [--extra lab ...]

Without ``--python`` those of `PYTHONS` on the path. A cell holds the seconds of the installation and the version
of what the extra is for; `-` where `pyproject.toml` leaves the extra empty for this Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.uv_settings import uv_settings

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
#: Extra -> distribution and module that it is for; "core" is the wheel without one.
BRINGS = {
    "core": ("numpy", "gpudemand"),
    "torch": ("torch", "torch"),
    "tensorflow": ("tensorflow", "keras"),
    "tda": ("giotto-ph", "gph"),
    "giotto": ("giotto-tda", "gtda.homology"),
    "calendar": ("holidays", "holidays"),
    "lab": ("jupyterlab", "ipywidgets"),
    "scale": ("dask", "distributed"),
    "all": ("torch", "tensorflow"),
    "test": ("pytest", "nbmake"),
    "docs": ("sphinx", "myst_nb"),
    "dev": ("mypy", "pre_commit"),
}
_CHECK = """
import importlib, importlib.metadata as metadata, sys
import gpudemand
jobs, _ = gpudemand.make_cluster(n_users=4, n_days=20, random_state=0)
assert len(gpudemand.usage_series(jobs))
try:
    version = metadata.version(sys.argv[1])
except metadata.PackageNotFoundError:
    print("-")
else:
    importlib.import_module(sys.argv[2])
    print(version)
"""


def install(python: str, wheel: Path, extra: str, uv: str) -> str:
    """Return the cell of a Python and an extra: seconds and version, `-`, or the last line of what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        env = Path(folder, "env")
        inside = env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        subprocess.run([python, "-m", "venv", "--without-pip", env], check=True)
        what = f"gpudemand @ {wheel.as_uri()}" if extra == "core" else f"gpudemand[{extra}] @ {wheel.as_uri()}"
        begin = time.perf_counter()
        # --no-config: what is tested is the wheel, not the checkout's own settings for uv.
        call = [uv, "pip", "install", "--quiet", "--no-config", "--only-binary", ":all:", "--python", inside, what]
        ended = subprocess.run(call, capture_output=True, text=True, check=False, cwd=folder)
        seconds = time.perf_counter() - begin
        if ended.returncode == 0:
            check = [inside, "-W", "ignore", "-c", _CHECK, *BRINGS[extra]]
            ended = subprocess.run(check, capture_output=True, text=True, check=False, cwd=folder)
        if ended.returncode:
            return "fails: " + " ".join(ended.stderr.split())[-200:]
        version = ended.stdout.split()[-1]
        return version if version == "-" else f"{seconds:.0f} s, {version}"


def main() -> None:
    """Print the table; the exit code is 1 where a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", nargs="+", default=[name for name in PYTHONS if shutil.which(name)])
    parser.add_argument("--extra", nargs="+", default=list(BRINGS), choices=list(BRINGS))
    asked = parser.parse_args()
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    os.environ.update({name: value for name, value in uv_settings(listing.stdout).items() if name not in os.environ})
    with tempfile.TemporaryDirectory() as folder:
        build = [
            uv,
            "build",
            "--quiet",
            "--wheel",
            "--no-build-isolation",
            "--python",
            sys.executable,
            "--out-dir",
            folder,
        ]
        subprocess.run([*build, str(ROOT)], check=True)
        (wheel,) = Path(folder).glob("gpudemand-*.whl")
        versions = [
            subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
            for python in asked.python
        ]
        print("| extra | brings |", " | ".join(versions), "|")
        print("|---|---|" + "---|" * len(versions), flush=True)
        failed = False
        for extra in asked.extra:
            print(f"| {extra} | {BRINGS[extra][0]} |", end="", flush=True)
            for python in asked.python:
                cell = install(python, wheel, extra, uv)
                failed |= cell.startswith("fails")
                print(f" {cell} |", end="", flush=True)
            print(flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
