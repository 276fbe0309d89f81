"""The commands on reports and usage. Heavy imports stay inside the commands, so that --help is instant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from gpudemand.cli.cost import calibrate, cost, devices, measure
from gpudemand.cli.pull import pull
from gpudemand.cli.terminal import Debug, Quiet, one_line, print_message, steps

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from gpudemand.study import StudyOptions

app = typer.Typer(
    help="GPU demand of a cluster from its job log: usage, forecast, capacity plan, and the cost of training jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

JobLog = Annotated[Path, typer.Argument(help="Job log.", show_default=False)]
Format = Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")]
Zone = Annotated[str | None, typer.Option(help="Time zone of the log and of the calendar, such as Europe/Berlin.")]
Origin = Annotated[str | None, typer.Option(help="Time zero of a log whose times are in seconds.")]
By = Annotated[str, typer.Option(help="Split by user, group, cluster, partition, qos or gpu_type; or total.")]
Freq = Annotated[str, typer.Option(help="Width of a bin: h, D, W-MON, MS.")]
NoLimits = Annotated[bool, typer.Option("--no-limits", help="Read a log of any size.")]
Until = Annotated[str | None, typer.Option(help="End of the period; by default where the log stops being complete.")]


def _read(log: Path, format: str, tz: str | None, origin: str | None, no_limits: bool) -> pd.DataFrame:  # noqa: A002
    from gpudemand.jobs import read_jobs
    from gpudemand.jobs.files import LIMITS

    return read_jobs(log, format=format, tz=tz, origin=origin, limits=None if no_limits else LIMITS)


def _show_version(show: bool) -> None:
    if show:
        from gpudemand import __version__

        typer.echo(f"gpudemand {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    ctx.obj = debug


@app.command()
@one_line
def report(
    ctx: typer.Context,
    log: Annotated[Path | None, typer.Argument(help="Job log; the bundled sample by default.")] = None,
    format: Format = "canonical",  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    by: By = "user",
    freq: Freq = "D",
    horizon: Annotated[
        int | None, typer.Option(help="Bins to forecast; by default the lead time and four weeks, if the log bears it.")
    ] = None,
    wait: Annotated[
        str | None, typer.Option(help="Time within which jobs are to start, such as 1h: GPUs are planned for waits.")
    ] = None,
    wait_share: Annotated[float, typer.Option(help="Share of the jobs that are to start within --wait.")] = 0.9,
    installed: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS",
            help="GPUs installed: 96, or A100=64,H100=32; by default the maximum of GPUs held at once in the log.",
        ),
    ] = None,
    target_utilization: Annotated[float, typer.Option(help="Share of the GPUs that mean demand may take.")] = 0.85,
    service_level: Annotated[
        float, typer.Option(help="Probability with which demand does not exceed the GPUs required.")
    ] = 0.95,
    lead_time: Annotated[str, typer.Option(help="Time from order to use, such as 90D.")] = "90D",
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="RESERVED ON_DEMAND",
            help="Prices of a GPU-hour, in any currency: adds the cheapest purchase mix and its cost.",
        ),
    ] = None,
    until: Until = None,
    cluster: Annotated[
        str | None, typer.Option(help="Clusters, such as alpha,beta, as one pool; or each: all, each its own pool.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-report"),
    no_limits: NoLimits = False,
    quiet: Quiet = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the headline numbers as JSON instead of the address.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a report on a job log, or on usage pulled from Prometheus: one HTML page, its figures and its tables.

    Example: gpudemand report jobs.parquet --installed 96 --lead-time 60D --wait 1h --out report
    """
    from gpudemand.cli.sample import sample_log
    from gpudemand.jobs.files import LIMITS
    from gpudemand.study import build_report
    from gpudemand.usage.read import read_log

    _warn_of_slow_blas(quiet=quiet)
    with steps(quiet=quiet) as begin:
        begin("Reading the log" if log else "Reading the bundled sample")
        limits = None if no_limits else LIMITS
        jobs = read_log(log, format, tz=tz, origin=origin, limits=limits) if log else sample_log()
        index = build_report(jobs, out, **_study_options(ctx, begin))
    typer.echo(_as_json(index) if as_json else index.resolve().as_uri())


@app.command()
@one_line
def demo(
    ctx: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-demo"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write the report on the bundled sample, a synthetic log of a cluster."""
    from gpudemand.cli.sample import SAMPLE, sample_log
    from gpudemand.study import build_report

    _warn_of_slow_blas(quiet=quiet)
    with steps(quiet=quiet) as begin:
        begin("Reading the bundled sample")
        options: StudyOptions = {**SAMPLE, "progress": begin}
        index = build_report(sample_log(), out, **options)
    typer.echo(index.resolve().as_uri())
    typer.echo(
        "For your own log: gpudemand report LOG --format sacct --tz Europe/Berlin (other formats: gpudemand formats)"
    )


def _study_options(ctx: typer.Context, begin: Callable[[str], None]) -> StudyOptions:
    """Parameters of a study by the options of the command; of the sample, what they leave open is asked of it."""
    from gpudemand.cli.sample import SAMPLE
    from gpudemand.stages.sources.settings import parse_installed
    from gpudemand.study import StudyOptions

    given = {name: ctx.params[name] for name in StudyOptions.__annotations__ if name in ctx.params}
    if ctx.params["log"] is None:
        sources = {name: ctx.get_parameter_source(name) for name in SAMPLE}
        given |= {name: SAMPLE[name] for name, source in sources.items() if source and source.name == "DEFAULT"}  # type: ignore[literal-required]
    if isinstance(given["installed"], str):
        given["installed"] = parse_installed(given["installed"])
    return cast("StudyOptions", {**given, "tz": ctx.params["tz"] or "UTC", "progress": begin})


def _warn_of_slow_blas(*, quiet: bool) -> None:
    from threadpoolctl import threadpool_info

    from gpudemand.cli.blas import cpu_flags, slow_blas_message

    message = slow_blas_message(threadpool_info(), cpu_flags())
    if message and not quiet:
        print_message(message)


def _as_json(index: Path) -> str:
    folder = index.resolve().parent
    files = {name: sorted(str(path) for path in (folder / name).iterdir()) for name in ("figures", "tables")}
    headline = json.loads((folder / "headline.json").read_text(encoding="utf-8"))
    return json.dumps({**headline, "report": str(folder / index.name), "uri": (folder / index.name).as_uri(), **files})


@app.command()
@one_line
def convert(
    ctx: typer.Context,
    log: JobLog,
    format: Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")],  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")] = Path("jobs.parquet"),
    no_limits: NoLimits = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Convert a job log to the canonical table."""
    from gpudemand.jobs import write_jobs

    _check_suffix(out)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = _read(log, format, tz, origin, no_limits)
        begin(f"Writing {len(jobs):,} jobs")
        write_jobs(jobs, out)
    typer.echo(out)


@app.command()
@one_line
def usage(
    ctx: typer.Context,
    log: JobLog,
    format: Format = "canonical",  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    by: By = "user",
    freq: Freq = "D",
    value: Annotated[str, typer.Option(help="gpu_hours, gpus, gpus_peak, wanted or jobs.")] = "gpu_hours",
    until: Until = None,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("usage.csv"),
    no_limits: NoLimits = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write usage series: unique_id, ds, y."""
    from gpudemand._tables import write_table
    from gpudemand._validation import InputError
    from gpudemand.store import is_store
    from gpudemand.usage.series import usage_series

    _check_suffix(out)
    if out.exists() and log.exists() and out.samefile(log):
        raise InputError(f"out={str(out)!r} is the log itself, which would be lost; choose another file.")
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        # DuckDB queries a canonical Parquet file in place, whatever its size.
        in_place = format == "canonical" and (log.suffix == ".parquet" or is_store(log))
        source = log if in_place else _read(log, format, tz, origin, no_limits)
        begin("Computing usage")
        series = usage_series(source, by=by, freq=freq, value=value, until=until, tz=tz)
        begin(f"Writing {len(series):,} rows")
        write_table(series, out)
    typer.echo(out)


def _check_suffix(out: Path) -> None:
    from gpudemand._validation import InputError

    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={str(out)!r} must end in .parquet or .csv.")


@app.command()
@one_line
def formats(ctx: typer.Context, debug: Debug = False) -> None:
    """List the log formats that can be read, and the options that each needs."""
    from gpudemand.jobs import formats as known

    table = known()
    width = table["name"].str.len().max()
    for name, description, needs in table[["name", "description", "needs"]].itertuples(index=False, name=None):
        typer.echo(f"{name:<{width}}  {description}" + (f"  (needs --{needs})" if needs else ""))


for command in (measure, cost, calibrate, devices):
    app.command()(command)
app.add_typer(pull, name="pull")


def main() -> None:
    """Run the command line; the entry point ``gpudemand``."""
    app(prog_name="gpudemand")
