"""The commands on reports and usage. Heavy imports stay inside the commands, so that --help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudemand.cli import options
from gpudemand.cli.cost import calibrate, cost, costs_against_log, devices, measure
from gpudemand.cli.options import Debug, Quiet, one_line, print_message, steps, workers
from gpudemand.cli.pull import pull
from gpudemand.cli.report import compare, demo, init, report

if TYPE_CHECKING:
    import pandas as pd


app = typer.Typer(
    help="GPU demand of a cluster from its job log: usage, forecast, capacity plan, and the cost of training jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

JobLog = Annotated[Path, typer.Argument(help="Job log.", show_default=False)]


def _read(
    log: Path,
    format: str,  # noqa: A002
    tz: str | None,
    origin: str | None,
    no_limits: bool,
    shares: list[str] | None,
    columns: str | None,
) -> pd.DataFrame:
    from gpudemand.jobs import read_jobs
    from gpudemand.jobs.files import LIMITS

    given: dict[str, Any] = {"tz": tz, "origin": origin, "gpu_share": options.parse_shares(shares), "columns": columns}
    return read_jobs(log, format=format, limits=None if no_limits else LIMITS, **given)


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
def convert(
    ctx: typer.Context,
    log: JobLog,
    format: Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")],  # noqa: A002
    tz: options.Zone = None,
    origin: options.Origin = None,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")] = Path("jobs.parquet"),
    gpu_share: options.GpuShare = None,
    columns: options.Columns = None,
    no_limits: options.NoLimits = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Convert a job log to the canonical table.

    Example: gpudemand convert log.psv --format sacct --tz Europe/Berlin --out jobs.parquet
    """
    from gpudemand.jobs import write_jobs

    _check_suffix(out)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = _read(log, format, tz, origin, no_limits, gpu_share, columns)
        begin(f"Writing {len(jobs):,} jobs")
        write_jobs(jobs, out)
    typer.echo(out)


@app.command()
@one_line
def usage(
    ctx: typer.Context,
    log: JobLog,
    format: options.Format = "canonical",  # noqa: A002
    tz: options.Zone = None,
    origin: options.Origin = None,
    by: options.By = "user",
    freq: options.Freq = "D",
    value: Annotated[str, typer.Option(help="gpu_hours, gpus (for reports), gpus_peak, wanted or jobs.")] = "gpu_hours",
    until: options.Until = None,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("usage.csv"),
    gpu_share: options.GpuShare = None,
    columns: options.Columns = None,
    json: options.AsJson = False,
    no_limits: options.NoLimits = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write usage series: unique_id, ds, y.

    Example: gpudemand usage jobs.parquet --by group --freq h --value gpus --out usage.csv
    """
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
        in_place = format == "canonical" and (log.suffix == ".parquet" or is_store(log)) and not (gpu_share or columns)
        source = log if in_place else _read(log, format, tz, origin, no_limits, gpu_share, columns)
        begin("Computing usage")
        series = usage_series(source, by=by, freq=freq, value=value, until=until, tz=tz)
        if json:
            typer.echo(series.to_json(orient="records", date_format="iso"))
            return
        begin(f"Writing {len(series):,} rows")
        write_table(series, out)
    typer.echo(out)


def _check_suffix(out: Path) -> None:
    from gpudemand._validation import InputError

    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={str(out)!r} must end in .parquet or .csv.")


@app.command()
@one_line
def forecast(
    ctx: typer.Context,
    log: Annotated[Path, typer.Argument(help="Job log, Parquet or CSV, or a store.", show_default=False)],
    into: Annotated[Path, typer.Option(help="Folder of the run, new or of one to go on with.")] = Path("forecast"),
    tz: options.Zone = None,
    by: options.By = "user",
    freq: options.Freq = "D",
    value: Annotated[str, typer.Option(help="gpus, gpu_hours or wanted.")] = "gpus",
    horizon: Annotated[int, typer.Option(help="Bins to forecast.")] = 28,
    until: options.Until = None,
    chunk: Annotated[int, typer.Option(help="Series at once in a process, of about 0.7 GiB a thousand.")] = 2000,
    processes: Annotated[int, typer.Option(help="Chunks at once on this machine.")] = 1,
    dask: options.Dask = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Segment and forecast every user of a log of any size, in chunks; the same command goes on with a stopped run.

    Example: gpudemand forecast jobs.parquet --by user --horizon 28 --processes 2 --into forecast
    """
    from gpudemand.bulk import bulk_forecast

    try:
        with workers(dask), steps(quiet=quiet) as begin:
            given: dict[str, Any] = {"by": by, "freq": freq, "value": value, "until": until, "tz": tz}
            given |= {"horizon": horizon, "series_per_chunk": chunk, "n_jobs": processes}
            files = bulk_forecast(log, into, **given, progress=begin)
    except KeyboardInterrupt:
        print_message(f"interrupted; what is done is kept in {str(into)!r}: run the same command again to go on.")
        raise typer.Exit(options.INTERRUPTED) from None
    typer.echo(files)


@app.command()
@one_line
def formats(ctx: typer.Context, debug: Debug = False) -> None:
    """List the log formats that can be read, and the options that each needs.

    Example: gpudemand formats
    """
    from gpudemand.jobs import formats as known

    table = known()
    width = table["name"].str.len().max()
    for name, description, needs in table[["name", "description", "needs"]].itertuples(index=False, name=None):
        typer.echo(f"{name:<{width}}  {description}" + (f"  (needs --{needs})" if needs else ""))


for command in (report, compare, demo, init, measure, cost, calibrate, costs_against_log, devices):
    app.command()(command)
app.add_typer(pull, name="pull")


def main() -> None:
    """Run the command line; the entry point ``gpudemand``."""
    app(prog_name="gpudemand")
