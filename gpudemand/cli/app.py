"""The commands on reports and usage. Heavy imports stay inside the commands, so that --help is instant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpudemand.cli import options
from gpudemand.cli.cost import calibrate, cost, costs_against_log, devices
from gpudemand.cli.options import Debug, Quiet, log_options, one_line, print_message, steps, takes_log_options, workers
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
@takes_log_options
@one_line
def convert(
    ctx: typer.Context,
    log: JobLog,
    format: Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")],  # noqa: A002
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")] = Path("jobs.parquet"),
    quiet: Quiet = False,
) -> None:
    """Convert a job log to the canonical table.

    Example: gpudemand convert log.psv --format sacct --tz Europe/Berlin --out jobs.parquet
    """
    from gpudemand.jobs import read_jobs, write_jobs

    _check_target(out, "user", "start", "end", "gpus")
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = read_jobs(log, **log_options(ctx.params))
        begin(f"Writing {len(jobs):,} jobs")
        write_jobs(jobs, out)
    typer.echo(out)


@app.command()
@takes_log_options
@one_line
def usage(
    ctx: typer.Context,
    log: JobLog,
    by: options.By = "user",
    freq: options.Freq = "D",
    value: Annotated[str, typer.Option(help="gpu_hours, gpus (for reports), gpus_peak, wanted or jobs.")] = "gpu_hours",
    until: options.Until = None,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("usage.csv"),
    json: options.AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write usage series: unique_id, ds, y. Means (gpus, wanted) are of the bins that the log covers as a whole.

    Example: gpudemand usage jobs.parquet --by group --freq h --value gpus --out usage.csv
    """
    from gpudemand._tables import write_table
    from gpudemand.jobs import read_jobs
    from gpudemand.store import is_store
    from gpudemand.usage.series import usage_series

    if not json:
        _check_target(out, "unique_id", "ds", "y")
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        # DuckDB queries a canonical Parquet file in place, whatever its size.
        asked = ctx.params
        as_it_is = asked["format"] == "canonical" and not (asked["gpu_share"] or asked["columns"])
        in_place = as_it_is and (log.suffix == ".parquet" or is_store(log))
        source = log if in_place else read_jobs(log, **log_options(asked))
        begin("Computing usage")
        # A mean over a bin of which the log has a part would be too low, and a CSV file does not tell that it is.
        whole = value in ("gpus", "wanted")
        series = usage_series(source, by=by, freq=freq, value=value, until=until, tz=asked["tz"], partial=not whole)
        if whole:
            _tell_left_out(series)
        if json:
            typer.echo(series.to_json(orient="records", date_format="iso"))
            return
        begin(f"Writing {len(series):,} rows")
        write_table(series, out)
    typer.echo(out)


def _tell_left_out(series: pd.DataFrame) -> None:
    """Say from when to when the whole bins are."""
    import pandas as pd

    from gpudemand.usage.bins import bin_ends

    first, last = series["ds"].min(), series["ds"].max()
    end = bin_ends(pd.DatetimeIndex([last]), series.attrs["freq"])[0]
    print_message(f"means are of whole bins, from {first} to {end}; --value gpu_hours has parts of bins, too.")


def _check_target(out: Path, *columns: str) -> None:
    """Refuse what is not called a table, and to replace a file that has not the columns of the one to be written."""
    from gpudemand._validation import InputError
    from gpudemand.jobs.files import read_names

    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={str(out)!r} must end in .parquet or .csv.")
    if not out.is_file() or not out.stat().st_size:
        return
    try:
        known = set(columns) <= set(read_names(out))
    except InputError:
        known = False
    if not known:
        has = f"is there already and lacks the columns {', '.join(columns)} of an earlier result"
        raise InputError(f"out={str(out)!r} {has}, so it would be lost; name another file, or delete it.")


@app.command()
@one_line
def forecast(
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
def formats() -> None:
    """List the log formats that can be read, and the options that each needs.

    Example: gpudemand formats
    """
    from gpudemand.jobs import formats as known

    table = known()
    width = table["name"].str.len().max()
    for name, description, needs in table[["name", "description", "needs"]].itertuples(index=False, name=None):
        typer.echo(f"{name:<{width}}  {description}" + (f"  (needs --{needs})" if needs else ""))


for command in (report, compare, demo, init, cost, calibrate, costs_against_log, devices):
    app.command()(command)
app.add_typer(pull, name="pull")


def main() -> None:
    """Run the command line; the entry point ``gpudemand``."""
    app(prog_name="gpudemand")
