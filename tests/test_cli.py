"""The command line: exit codes, one-line errors, JSON, files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gpudemand import __version__
from gpudemand.cli.app import app
from gpudemand.cli.report import SAMPLE, cpu_flags
from gpudemand.jobs import read_jobs, write_jobs
from gpudemand.store import Store
from gpudemand.usage.series import usage_series
from tests.report.conftest import brief, make_log, quick, undrawn  # noqa: F401


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "jobs.parquet"
    write_jobs(make_log(days=70), path)
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_line_error(result) -> str:
    """Message of a run that failed as expected."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("gpudemand: ")
    return lines[0]


@pytest.mark.usefixtures("quick", "undrawn", "brief")
@pytest.mark.slow
def test_json_is_one_object_and_nothing_else(log_file, tmp_path):
    arguments = ("--horizon", 7, "--installed", 64, "--lead-time", "30D", "--quiet", "--json")
    result = invoke("report", log_file, *arguments, "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["installed"] == 64
    assert printed["shortfall"] == max(printed["required"] - 64, 0)
    assert printed["data_kind"] == "synthetic"
    assert (
        pd.read_parquet(next(p for p in printed["tables"] if p.endswith("plan_summary.parquet")))["required"].max()
        == printed["required"]
    )
    assert sorted(printed["figures"]) == sorted(map(str, (tmp_path / "figures").iterdir()))
    assert len(printed["figures"]) == 18  # without segments and parts, which are left out here
    assert result.stderr == "" or "rows left out" in result.stderr


@pytest.fixture
def small_sample(monkeypatch):
    """The bundled sample replaced by a small log, and its question by one on a few days."""
    monkeypatch.setattr("gpudemand.datasets.load_jobs_sample", lambda: make_log(days=40, per_day=2))
    monkeypatch.setitem(SAMPLE, "lead_time", "3D")


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample", "quick", "undrawn", "brief")
def test_report_without_a_log_reads_the_bundled_sample(tmp_path):
    result = invoke("report", "--quiet", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["data_kind"] == "synthetic"
    assert printed["installed"] == 600


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample", "quick", "undrawn", "brief")
def test_demo_writes_the_report_on_the_sample_and_names_the_command_for_a_log(tmp_path):
    result = invoke("demo", "--quiet", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.stderr
    address, hint = result.stdout.splitlines()
    assert address == (tmp_path / "demo" / "index.html").as_uri()
    assert (tmp_path / "demo" / "index.html").is_file()
    assert hint.startswith("For your own log: gpudemand report LOG --format")


@pytest.mark.usefixtures("quick", "undrawn", "brief")
def test_report_prints_its_address_and_steps_and_prices_and_types_reach_the_page(log_file, tmp_path):
    arguments = ("--horizon", 7, "--prices", 1.5, 4, "--installed", "A100=64,H100=16", "--by", "gpu_type")
    result = invoke("report", log_file, *arguments, "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == (tmp_path / "index.html").as_uri()
    assert "Reading the log" in result.stderr
    assert "Drawing figures" in result.stderr
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "At 1.5 for a reserved and 4.0 for an on-demand GPU-hour" in html
    assert "By type, each a pool of its own, at the 95% service level: " in html
    costs = pd.read_parquet(tmp_path / "tables" / "purchase_mix.parquet").iloc[0]
    assert costs["break_even_share"] == pytest.approx(1.5 / 4)
    assert 0 < costs["cost"] <= min(costs["cost_reserved"], costs["cost_on_demand"])
    types = pd.read_csv(tmp_path / "tables" / "gpu_type_plans.csv", index_col="gpu_type")
    assert types["installed"].to_dict() == {"all, as one pool": 80, "A100": 64, "H100": 16}
    assert (types["shortfall"] == (types["required"] - types["installed"]).clip(lower=0)).all()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("report", "nowhere.csv"), "nowhere.csv"),
        (("report", "{log}", "--by", "usr"), "--by 'usr' is not known. Did you mean 'user'"),
        (("report", "{log}", "--format", "sact"), "Did you mean 'sacct'"),
        (("report", "{log}", "--horizon", "50"), "use --horizon 21 or less, or a finer --freq"),
        (("report", "{log}", "--lead-time", "soon"), "length of time"),
        (("report", "{log}", "--lead-time=-5D"), "--lead-time must not be negative; got '-5D'"),
        (("report", "{log}", "--installed", "many"), "write 96, or A100=64,H100=32"),
        (("report", "{log}", "--installed", "A100=9,H100=1,A100=2"), "names a GPU type twice"),
        (("report", "{log}", "--installed", "A100=0,H100=0"), "summed over types, must be a number above 0"),
        (("report", "{log}", "--installed", "A100=9"), "--installed has no value for 'H100'"),
        (("report", "{log}", "--installed", "A100=4,a100=4"), "--installed has 'a100', which is called 'A100'"),
        (("report", "lead_time.csv"), "there is no file 'lead_time.csv'"),
        (("usage", "."), "'.' is a folder"),
        (("usage", "{log}", "--by", "users"), "status, total, user."),
        (("forecast", "{log}", "--by", "users"), "status, total, user."),
        (("report", "{log}", "--prices", "0", "4"), "prices (reserved) must be a number above 0"),
        (("report", "{log}", "--prices", "1", "nan"), "prices (on demand) must be a number above 0"),
        (("report", "{log}", "--prices", "4", "1"), "the reserved price comes first"),
        (("report", "{log}", "--tz", "Mars"), "Mars"),
        (("report", "{log}", "--until", "yesterdayish"), "is not a time"),
        (("report", "{log}", "--until", "9999-01-01"), "is not a time from 1985 to 2199"),
        (("forecast", "{log}", "--processes", "0"), "--processes 0"),
        (("usage", "{log}", "--out", "usage.xlsx"), ".parquet or .csv"),
        (("usage", "{log}", "--value", "gpu_hour"), "Did you mean 'gpu_hours'"),
        (("convert", "{log}", "--format", "swf", "--out", "jobs.json"), ".parquet or .csv"),
    ],
)
def test_invalid_input_is_one_line_and_exit_code_two(log_file, tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    line = one_line_error(invoke(*(a.format(log=log_file) for a in arguments), "--quiet"))
    assert text in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servce_level = 0.9", "Did you mean 'service_level'? Keys of a plan: by, installed, service_level,"),
        ("lead_time = 90", "plan.toml: lead_time must be text in quotes"),
        ("by = 'usr'", "plan.toml: by='usr' is not known"),
        ("installed = { a100 = 4 }", "gpudemand: installed has 'a100', which is called 'A100' in this log"),
    ],
)
def test_messages_on_a_plan_name_its_keys(log_file, tmp_path, text, message):
    plan = tmp_path / "plan.toml"
    plan.write_text(f"log = '{log_file}'\n{text}\n")
    assert message in one_line_error(invoke("report", "--plan", plan, "--quiet"))


def test_columns_of_a_log_are_no_options(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("user,lead_time,end,gpus\nada,2026-01-01,2026-01-02,1\n")
    assert "it has user, lead_time, end, gpus" in one_line_error(invoke("report", file, "--quiet"))


@pytest.mark.parametrize("end", ["csv", "parquet"])
@pytest.mark.parametrize("command", [("usage",), ("convert", "--format", "canonical")])
def test_only_an_earlier_result_is_replaced(tmp_path, command, end):
    log, out = tmp_path / "log.csv", tmp_path / f"out.{end}"
    log.write_text("user,start,end,gpus\nada,2026-01-01T00:00Z,2026-01-02T00:00Z,1\n")
    run = (*command, log, "--out", out, "--quiet")
    for kept in (b"name,price\nA100,2\n", b"PAR1 cut off", b"\x89PNG"):
        out.write_bytes(kept)
        assert "name another file, or delete it" in one_line_error(invoke(*run))
        assert out.read_bytes() == kept
    out.write_bytes(b"")
    for _ in range(2):
        assert (done := invoke(*run)).exit_code == 0, done.output
    assert not out.read_bytes().startswith(kept)


def test_usage_never_replaces_its_log_and_printed_writes_nothing(log_file):
    before = log_file.read_bytes()
    one_line_error(invoke("usage", log_file, "--out", log_file, "--quiet"))
    assert invoke("usage", log_file, "--out", log_file, "--json", "--quiet").exit_code == 0
    assert log_file.read_bytes() == before


def test_an_impossible_folder_is_one_line(log_file, tmp_path):
    (tmp_path / "taken").write_text("a file")
    line = one_line_error(invoke("report", log_file, "--horizon", 7, "--quiet", "--out", tmp_path / "taken"))
    assert "taken" in line


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_error_itself(place):
    arguments = ["--debug", "report", "nowhere.csv"] if place == "before" else ["report", "nowhere.csv", "--debug"]
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert type(result.exception).__name__ == "InputError"


def test_a_bug_is_one_line_too(monkeypatch):
    monkeypatch.setattr("gpudemand.cli.report._read", lambda *_: 1 / 0)
    line = one_line_error(invoke("report", "log.csv", "--quiet"))
    assert "this is a bug (ZeroDivisionError" in line


def _no_object(*_):
    """What Arrow raises where Python has no memory for the object of a value."""
    raise pa.ArrowException("Unknown error: Wrapping 2026-01-05\n10:00Z failed")


def _no_memory_of_duckdb(*_):
    with duckdb.connect(config={"memory_limit": "1MB", "max_temp_directory_size": "0B"}) as db:
        db.sql("SELECT list(range) FROM range(10000000)").fetchall()


NO_MEMORY = [lambda *_: bytearray(1 << 62), lambda *_: pa.allocate_buffer(1 << 62), _no_object, _no_memory_of_duckdb]


@pytest.mark.parametrize("fill", NO_MEMORY)
def test_what_does_not_fit_into_memory_is_one_line_and_no_bug(fill, monkeypatch):
    monkeypatch.setattr("gpudemand.cli.report._read", fill)
    line = one_line_error(invoke("report", "log.csv", "--quiet"))
    assert "there is not enough memory" in line
    assert "take a coarser --freq or less of the log" in line


@pytest.mark.parametrize("fill", NO_MEMORY)
def test_python_says_the_same_of_what_does_not_fit_into_memory(fill, log_file, monkeypatch):
    monkeypatch.setattr("gpudemand.jobs.read.existing_path", fill)
    with pytest.raises(
        MemoryError, match=r"(?s)^there is not enough memory( \(.*\))?; take a coarser freq .*less of the log\.$"
    ):
        read_jobs(log_file)


def test_only_what_is_known_to_be_for_want_of_memory_is_said_to_be(log_file, monkeypatch):
    monkeypatch.setattr("gpudemand.cli.report._read", lambda *_: pa.array([1]).cast(pa.list_(pa.int8())))
    assert "this is a bug (Arrow" in one_line_error(invoke("report", "log.csv", "--quiet"))


def test_a_log_that_a_query_has_no_memory_for_is_not_said_to_be_damaged(log_file, monkeypatch):
    monkeypatch.setattr("gpudemand.usage.query._create_stored", _no_memory_of_duckdb)
    with pytest.raises(MemoryError, match="less of the log"):
        usage_series(log_file)
    monkeypatch.setattr("gpudemand.store._database", _no_memory_of_duckdb)
    with pytest.raises(duckdb.OutOfMemoryException):
        Store(log_file.parent, {}, {"jobs/2026-01.0.parquet": ""}).query("jobs", "SELECT * FROM stored")


def test_a_large_file_is_queried_and_not_read(log_file, tmp_path, monkeypatch):
    monkeypatch.setattr("gpudemand.jobs.read_jobs", lambda *_, **__: pytest.fail("the file was read"))
    result = invoke("usage", log_file, "--by", "total", "--out", tmp_path / "usage.parquet", "--quiet")
    assert result.exit_code == 0
    expected = usage_series(log_file, by=None)
    assert pd.read_parquet(tmp_path / "usage.parquet")["y"].tolist() == expected["y"].tolist()


def test_convert_and_read_back(tmp_path):
    sacct = tmp_path / "log.psv"
    sacct.write_text(
        "JobID|User|State|Submit|Start|End|AllocTRES\n"
        "7|ada|COMPLETED|2024-05-01T08:00:00|2024-05-01T09:00:00|2024-05-01T10:00:00|cpu=8,gres/gpu:a100=2\n"
        "8|bob|COMPLETED|2024-05-01T08:00:00|2024-05-01T11:00:00|2024-05-01T10:00:00|gres/gpu=1\n"
    )
    out = tmp_path / "jobs.parquet"
    result = invoke("convert", sacct, "--format", "sacct", "--tz", "Europe/Berlin", "--out", out, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(out)
    assert read_jobs(out)["user"].tolist() == ["ada"]
    (line,) = result.stderr.splitlines()
    assert line.startswith("gpudemand: ")
    assert "1 of 2 rows left out" in line


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_usage_writes_what_the_function_gives(log_file, tmp_path, ending):
    out = tmp_path / f"usage.{ending}"
    result = invoke("usage", log_file, "--by", "group", "--freq", "W-MON", "--value", "gpus", "--out", out, "--quiet")
    assert result.exit_code == 0, result.stderr
    wrote = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    expected = usage_series(read_jobs(log_file), by="group", freq="W-MON", value="gpus", partial=False)
    assert wrote["unique_id"].tolist() == expected["unique_id"].tolist()
    assert wrote["y"].tolist() == pytest.approx(expected["y"].tolist())


def test_a_mean_over_a_bin_that_the_log_has_in_part_is_left_out(log_file, tmp_path):
    wrote, said = {}, {}
    for value in ("gpus", "gpu_hours"):
        out = tmp_path / f"{value}.csv"
        result = invoke("usage", log_file, "--by", "total", "--value", value, "--out", out, "--quiet")
        wrote[value], said[value] = pd.read_csv(out), result.stderr
    hours = wrote["gpu_hours"]
    assert wrote["gpus"]["y"].tolist() == pytest.approx((hours["y"] / 24).tolist()[:-1])
    first, last = hours["ds"].iloc[[0, -1]]
    assert f"means are of whole bins, from {first} to {last};" in said["gpus"]
    assert not said["gpu_hours"]


def test_formats_lists_every_reader_and_its_needs():
    result = invoke("formats")
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert {"canonical", "sacct", "swf", "helios"} <= set(lines)
    assert "needs --tz" in lines["sacct"]


def test_version_and_module_entry_point():
    run = subprocess.run([sys.executable, "-m", "gpudemand", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"gpudemand {__version__}"


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom gpudemand.cli.app import app\n"
        "try:\n    app(['report', '--help'])\nexcept SystemExit:\n    pass\n"
        "loaded = {'numpy', 'pandas', 'matplotlib', 'statsmodels', 'duckdb'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    begin = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "--target-utilization" in run.stdout
    assert time.perf_counter() - begin < 5  # under half a second on an idle machine


@pytest.mark.parametrize(
    ("architecture", "flags", "slow"),
    [
        ("Prescott", "fma avx2", True),
        ("Nehalem", "avx2", True),
        ("Prescott", "sse4_2", False),
        ("SkylakeX", "avx2", False),
        ("Haswell", "avx2", False),
    ],
)
def test_slow_blas_kernels_are_reported_where_the_processor_has_avx2(monkeypatch, tmp_path, architecture, flags, slow):
    libraries = [{"internal_api": "openmp"}, {"internal_api": "openblas", "architecture": architecture}]
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: libraries)
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n\nprocessor : 1\n")
    monkeypatch.setattr("gpudemand.cli.report.cpu_flags", lambda: cpu_flags(tmp_path / "cpuinfo"))
    stderr = invoke("report", "nowhere.csv").stderr
    assert (f"OpenBLAS uses its {architecture} kernels" in stderr) == slow
    assert "OpenBLAS" not in invoke("report", "nowhere.csv", "--quiet").stderr


def test_cpu_flags_are_empty_without_cpuinfo(tmp_path):
    assert cpu_flags(tmp_path / "cpuinfo") == frozenset()


def commands(command, path=()):
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def test_no_help_loses_what_stands_in_brackets():
    """A name in brackets is a style to what prints the help."""
    for path, command in commands(get_command(app)):
        helps = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
        assert not [said for said in helps if re.search(r"\[[a-z]", said)], path
