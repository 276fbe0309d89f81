"""The wheel carries the data, and works where there is no checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import gpudemand as gd

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if not (ROOT / "data" / "registry.json").is_file():
        pytest.skip("runs from a checkout; here the installed wheel itself is under test")
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("gpudemand-*.whl"))


def test_the_wheel_holds_package_data_and_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "gpudemand/_data/registry.json" in names
    assert "gpudemand/py.typed" in names
    assert {"gpudemand/study/plan.toml", "gpudemand/report/report.schema.json"} <= names
    assert {f"gpudemand/cost/{name}.csv" for name in ("operators", "kernels", "transformer_families")} <= names
    assert all(any(name.endswith(f"licenses/{file}") for name in names) for file in ("LICENSE", "NOTICE"))
    assert not any(name.startswith(("tests/", "notebooks/", "benchmarks/")) for name in names)


def test_the_source_archive_holds_what_its_tests_read(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("runs from a checkout")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = ["git", "ls-files", "*.py", "*.md", "*.csv", "*.toml", "Makefile", "NOTICE", "CITATION.cff"]
    tracked = subprocess.run(listed, check=True, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()
    assert {name for name in tracked if not name.startswith(".")} <= names


@pytest.mark.slow
def test_an_empty_environment_writes_a_report_from_the_wheel(wheel, tmp_path):
    """The wheel is installed into a new environment; its dependencies are those of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    lent = [path for path in sys.path if path.endswith("site-packages")]
    Path(site, "lent.pth").write_text("\n".join(lent))
    gd.write_jobs(gd.make_cluster(n_users=8, n_days=40, random_state=0)[0], tmp_path / "jobs.parquet")
    code = "import gpudemand as gd; print(gd.__file__); print(len(gd.load_jobs_sample()))"
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    clean["NUMBA_DISABLE_JIT"] = "1"  # to compile takes longer than these few jobs do in Python
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=clean)
    home, rows = run.stdout.splitlines()
    assert home.startswith(str(tmp_path))
    assert int(rows) > 1000
    report = [python, "-m", "gpudemand", "report", "jobs.parquet", "--quiet", "--horizon", "7", "--out", "report"]
    run = subprocess.run(report, capture_output=True, text=True, check=True, cwd=tmp_path, env=clean)
    assert run.stdout.splitlines()[0] == (tmp_path / "report" / "index.html").as_uri()


#: Names on conda-forge that differ from those on PyPI.
CONDA = {
    "python-duckdb": "duckdb",
    "lazy_loader": "lazy-loader",
    "matplotlib-base": "matplotlib",
    "python-tzdata": "tzdata",
}


def test_the_conda_recipe_needs_what_the_package_needs():
    yaml = pytest.importorskip("yaml")
    if not (ROOT / "conda" / "recipe.yaml").is_file():
        pytest.skip("runs from a checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    needed = dict(re.fullmatch(r"([\w-]+)(.*)", each).groups() for each in project["dependencies"])
    python, *others = (each.partition(" ") for each in recipe["requirements"]["run"])
    assert {CONDA.get(name, name): bound for name, _, bound in others} == needed
    assert python[2] == project["requires-python"]
    assert recipe["package"] == {name: project[name] for name in ("name", "version")}
    ((name, call),) = project["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {call}"]


def test_the_image_installs_extras_that_exist():
    if not (ROOT / "Dockerfile").is_file():
        pytest.skip("runs from a checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r'"/src\[(.*)\]"', (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
