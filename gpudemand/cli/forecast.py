"""The command that forecasts every series of a log, chunk by chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudemand.cli.options import (
    INTERRUPTED,
    By,
    Dask,
    Debug,
    Freq,
    Quiet,
    Until,
    Zone,
    one_line,
    print_message,
    steps,
    workers,
)


@one_line
def forecast(
    ctx: typer.Context,
    log: Annotated[Path, typer.Argument(help="Job log, Parquet or CSV, or a store.", show_default=False)],
    into: Annotated[Path, typer.Option(help="Folder of the run, new or of one to go on with.")] = Path("forecast"),
    tz: Zone = None,
    by: By = "user",
    freq: Freq = "D",
    value: Annotated[str, typer.Option(help="gpus, gpu_hours or wanted.")] = "gpus",
    horizon: Annotated[int, typer.Option(help="Bins to forecast.")] = 28,
    until: Until = None,
    chunk: Annotated[int, typer.Option(help="Series at once in a process, of about 0.7 GiB a thousand.")] = 2000,
    processes: Annotated[int, typer.Option(help="Chunks at once on this machine.")] = 1,
    dask: Dask = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Segment and forecast every user of a log of any size, in chunks; the same command goes on with a stopped run.

    Example: gpudemand forecast jobs.parquet --by user --horizon 28 --processes 2 --into forecast
    """
    from gpudemand.bulk import bulk_forecast

    try:
        with workers(dask), steps(quiet=quiet) as begin:
            files = bulk_forecast(
                log,
                into,
                by=by,
                freq=freq,
                value=value,
                horizon=horizon,
                until=until,
                tz=tz,
                series_per_chunk=chunk,
                n_jobs=processes,
                progress=begin,
            )
    except KeyboardInterrupt:
        print_message(f"interrupted; what is done is kept in {str(into)!r}: run the same command again to go on.")
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(files)
