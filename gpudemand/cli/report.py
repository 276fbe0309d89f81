"""`gpudemand report`, `demo` and `init`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudemand.cli.options import (
    Dask,
    Format,
    Quiet,
    log_options,
    one_line,
    print_message,
    steps,
    takes_log_options,
    takes_study_options,
    workers,
)

if TYPE_CHECKING:
    import pandas as pd

    from gpudemand.study.plan_file import ReportPlan


#: Exit status of ``gpudemand report --check`` when an order is due; 1 and 2 are errors.
ORDER_DUE = 3


@takes_study_options
@takes_log_options
@one_line
def report(
    ctx: typer.Context,
    log: Annotated[
        Path | None,
        typer.Argument(help="Job log or store; by default that of --plan, or the sample.", show_default=False),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Plan file (see `gpudemand init`) that these options complete.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-report"),
    previous: Annotated[
        Path | None,
        typer.Option(help="Folder of an earlier report to compare with; by default that of a month ago in --out."),
    ] = None,
    style: Annotated[Path | None, typer.Option(help="File of CSS whose rules come after those of the page.")] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="Also write the numbers to this .prom file, for the textfile collector.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with status 3 if GPUs must be ordered now, for cron and CI.")
    ] = False,
    dask: Dask = None,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the headline numbers as JSON instead of the address.")
    ] = False,
) -> None:
    """Write a report on a job log, or on usage pulled from Prometheus: one HTML page, its figures and its tables.

    Example: gpudemand report jobs.parquet --installed 96 --lead-time 60D --wait 1h --out report

    Every month: gpudemand report --plan plan.toml --check
    """
    from gpudemand.report.build import build_report
    from gpudemand.report.metrics import check_metrics_path, write_metrics

    asked = _asked(ctx)
    if asked["metrics"] is not None:
        check_metrics_path(asked["metrics"])  # before the minutes of computation
    _warn_of_slow_blas(quiet=quiet)
    with workers(dask), steps(quiet=quiet) as begin:
        begin("Reading the log" if asked["log"] else "Reading the bundled sample")
        jobs = _read(asked)
        study = _study_options(asked, begin)
        index = build_report(jobs, asked["out"], previous=asked["previous"], style=asked["style"], **study)
    numbers = json.loads((index.parent / "report.json").read_bytes())
    if asked["metrics"] is not None:
        write_metrics(asked["metrics"], numbers, str(index.resolve().parent))
    typer.echo(_as_json(index, numbers) if as_json else index.resolve().as_uri())
    if check and numbers["order"]["due"]:
        raise typer.Exit(ORDER_DUE)


@takes_log_options
@one_line
def compare(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Option(help="Plan file that states options.", show_default=False)],
    log: Annotated[
        Path | None, typer.Argument(help="Job log or store; by default that of --plan.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Compare purchases: which GPUs to buy, reserve or rent, how many, and at what cost, for the jobs of a log.

    Example: gpudemand compare --plan plan.toml
    """
    from gpudemand.report.text import purchases
    from gpudemand.study.study import Study

    asked = _asked(ctx)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = _read(asked)
        comparison = Study(jobs, **_study_options(asked, begin)).purchase_comparison
        tables = {"purchases": comparison.table}
        if comparison.table["cost_year"].notna().all():
            tables |= {"break_even": comparison.break_even, "decides": comparison.decides}
    if as_json:
        found = {name: json.loads(table.to_json(orient="records", date_format="iso")) for name, table in tables.items()}
        typer.echo(json.dumps(found))
        return
    for name, table in tables.items():
        typer.echo(f"{_in_columns(name, table)}\n")
    typer.echo(purchases(tables["purchases"], tables.get("break_even")))


#: Columns of the tables of `compare` as they are printed.
_PRINTED = {
    "purchases": "option to_buy to_buy-lo-90 to_buy-hi-90 order_by order_arrives run_time run_time-lo-90 "
    "run_time-hi-90 risk late_share idle_share rented_gpu_hours energy_mwh cost_year cost_year-lo-90 "
    "cost_year-hi-90 cost_gpu_hour",
    "break_even": "option against work price",
    "decides": "option input low high cost cost-low cost-high",
}


def _in_columns(name: str, table: pd.DataFrame) -> str:
    import pandas as pd

    from gpudemand._tables import aligned
    from gpudemand.report.tables import format_table

    shown = format_table(name, table, _PRINTED[name].split())
    return aligned(pd.DataFrame(shown.rows, columns=shown.headings))


@one_line
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-demo"),
    quiet: Quiet = False,
) -> None:
    """Write the report on the bundled sample, a synthetic log of a cluster.

    Example: gpudemand demo --out demo
    """
    from gpudemand.report.build import build_report

    _warn_of_slow_blas(quiet=quiet)
    with steps(quiet=quiet) as begin:
        begin("Reading the bundled sample")
        index = build_report(sample_log(), out, **SAMPLE, progress=begin)
    typer.echo(index.resolve().as_uri())
    typer.echo(
        "For your own log: gpudemand report LOG --format sacct --tz Europe/Berlin (other formats: gpudemand formats)"
    )


@one_line
def init(
    plan: Annotated[Path, typer.Argument(help="File to write.")] = Path("plan.toml"),
    log: Annotated[str, typer.Option(help="Job log or store, relative to the file.")] = "jobs.parquet",
    format: Format = "canonical",  # noqa: A002
    tz: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
) -> None:
    """Write the plan file of a recurring report, whose comments explain each line.

    Example: gpudemand init plan.toml --log /srv/gpu-jobs --tz Europe/Berlin
    """
    from gpudemand.study.plan_file import write_plan

    typer.echo(write_plan(plan, log=log, format=format, tz=tz))


def _asked(ctx: typer.Context) -> dict[str, Any]:
    """Parameters by name: of the command line, or else of the plan, or else by default."""
    from gpudemand.study.pools import parse_installed

    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    typed = {name: ctx.params[name] for name, source in sources.items() if source and source.name != "DEFAULT"}
    if isinstance(typed.get("installed"), str):
        typed["installed"] = parse_installed(typed["installed"])
    if ctx.params["plan"] is None:
        return {**ctx.params, **(SAMPLE if ctx.params["log"] is None else {}), **typed}
    from gpudemand.study.plan_file import read_plan

    plan = read_plan(ctx.params["plan"])
    if "log" not in typed:
        _check_log(plan)
    return {**ctx.params, **dict(plan), **plan.study_options(), **typed}


def _study_options(asked: Mapping[str, Any], begin: Callable[[str], None]) -> dict[str, Any]:
    """Arguments of `Study`."""
    from gpudemand.study.study import Study

    options = {name: asked[name] for name in inspect.signature(Study).parameters if name in asked}
    return options | {"progress": begin}


def _check_log(plan: ReportPlan) -> None:
    from gpudemand._validation import InputError

    if plan.log is None:
        raise InputError(f'{plan.file}: there is no log; name the job log or store, such as log = "jobs.parquet".')
    if not plan.log.exists():
        raise InputError(f"{plan.file}: log: there is no {str(plan.log)!r}; correct it there, or name another one.")


def _read(asked: Mapping[str, Any]) -> pd.DataFrame:
    from gpudemand.usage.read import read_log

    return sample_log() if asked["log"] is None else read_log(asked["log"], **log_options(asked))


def _warn_of_slow_blas(*, quiet: bool) -> None:
    from threadpoolctl import threadpool_info

    message = slow_blas_message(threadpool_info(), cpu_flags())
    if message and not quiet:
        print_message(message)


def _as_json(index: Path, numbers: Mapping[str, Any]) -> str:
    folder = index.resolve().parent
    files = {name: sorted(str(path) for path in (folder / name).iterdir()) for name in ("figures", "tables")}
    place = {"report": str(folder / index.name), "uri": (folder / index.name).as_uri()}
    return json.dumps({**numbers["headline"], "order_due": numbers["order"]["due"], **place, **files})


#: What is asked of the sample where nothing else is.
SAMPLE: dict[str, Any] = {"installed": 600.0, "lead_time": "30D", "wait": "1h"}


def sample_log() -> pd.DataFrame:
    """The bundled sample as its jobs would have run on 600 GPUs: as drawn, none of them ever waits for another."""
    from gpudemand.datasets import load_jobs_sample
    from gpudemand.planning.queue import simulate_queue

    return simulate_queue(load_jobs_sample(), 600)


#: OpenBLAS kernels for x86-64 without AVX.
_WITHOUT_AVX = {"prescott", "core2", "penryn", "dunnington", "nehalem", "atom", "athlon", "opteron"}
_WITHOUT_AVX |= {"opteron_sse3", "barcelona", "bobcat", "katmai", "coppermine", "northwood", "banias", "generic"}


def slow_blas_message(libraries: Iterable[Mapping[str, Any]], cpu_flags: Collection[str]) -> str | None:
    """Message on a BLAS without AVX kernels on a processor with AVX2; None if the kernels fit the processor.

    `libraries`: as ``threadpoolctl.threadpool_info()`` returns them. `cpu_flags`: as `cpu_flags` returns them.

    Examples
    --------
    >>> print(slow_blas_message([{"internal_api": "openblas", "architecture": "Prescott"}], {"avx2"}))
    OpenBLAS uses its Prescott kernels (no AVX) although the processor has AVX2, which is several times slower: install
    newer numpy and scipy wheels, or set OPENBLAS_CORETYPE=Haswell.
    """
    names = {str(library.get("architecture", "")) for library in libraries if library["internal_api"] == "openblas"}
    slow = sorted(name for name in names if name.lower() in _WITHOUT_AVX)
    if not slow or "avx2" not in cpu_flags:
        return None
    return (
        f"OpenBLAS uses its {slow[0]} kernels (no AVX) although the processor has AVX2, which is several times slower: "
        "install newer numpy and scipy wheels, or set OPENBLAS_CORETYPE=Haswell."
    )


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Feature flags of the processor, from Linux; empty on other systems."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split(":")[-1].split())
