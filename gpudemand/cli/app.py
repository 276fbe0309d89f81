"""The command line: parse, call, show progress. Heavy imports stay inside the commands, so that --help is instant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudemand.cli.cost import calibrate, cost, devices, measure
from gpudemand.cli.terminal import Debug, Quiet, one_line, steps

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    help="How many GPUs a cluster will need, for whom, when, and at what risk: from its job log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Log = Annotated[Path, typer.Argument(help="Job log.", show_default=False)]
Format = Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")]
Zone = Annotated[str | None, typer.Option(help="Time zone of the log and of the calendar, such as Europe/Berlin.")]
Origin = Annotated[str | None, typer.Option(help="When a log that counts seconds began.")]
By = Annotated[str, typer.Option(help="Split by user, group, cluster, gpu_type; or total.")]
Freq = Annotated[str, typer.Option(help="Width of a bin: h, D, W-MON, MS.")]
Until = Annotated[str | None, typer.Option(help="End of the period; where the log stops being complete by default.")]


def _read(log: Path, format: str, tz: str | None, origin: str | None) -> pd.DataFrame:  # noqa: A002
    from gpudemand.jobs import read_jobs

    return read_jobs(log, format=format, tz=tz, origin=origin)


def _show_version(wanted: bool) -> None:
    if wanted:
        from gpudemand import __version__

        typer.echo(f"gpudemand {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
    debug: Debug = False,
) -> None:
    ctx.obj = debug


@app.command()
@one_line
def report(
    ctx: typer.Context,
    log: Annotated[Path | None, typer.Argument(help="Job log; the bundled sample if there is none.")] = None,
    format: Format = "canonical",  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    by: By = "user",
    freq: Freq = "D",
    horizon: Annotated[int, typer.Option(help="Bins to look ahead.")] = 28,
    installed: Annotated[
        str | None,
        typer.Option(
            metavar="GPUS", help="GPUs installed, 96 or A100=64,H100=32; by default the most that the log held at once."
        ),
    ] = None,
    target_utilization: Annotated[float, typer.Option(help="Share of the GPUs that mean demand may take.")] = 0.85,
    service_level: Annotated[float, typer.Option(help="Probability with which demand shall fit.")] = 0.95,
    lead_time: Annotated[str, typer.Option(help="From order to use, such as 90D.")] = "90D",
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="RESERVED ON_DEMAND",
            help="Prices of one GPU for one hour, in any currency: adds the cheapest mix and what it costs.",
        ),
    ] = None,
    until: Until = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-report"),
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the headline as JSON, and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """Write a report: one HTML page, its figures and its tables."""
    from gpudemand.datasets.load import load_jobs_sample
    from gpudemand.report import build_report
    from gpudemand.report.analysis.settings import read_installed

    with steps(quiet=quiet) as begin:
        begin("Reading the log" if log else "Reading the bundled sample")
        jobs = _read(log, format, tz, origin) if log else load_jobs_sample()
        index = build_report(
            jobs,
            out,
            by=by,
            freq=freq,
            horizon=horizon,
            installed=None if installed is None else read_installed(installed),
            target_utilization=target_utilization,
            service_level=service_level,
            lead_time=lead_time,
            tz=tz or "UTC",
            until=until,
            prices=prices,
            progress=begin,
        )
    typer.echo(_as_json(index) if as_json else index.resolve().as_uri())


def _as_json(index: Path) -> str:
    folder = index.resolve().parent
    files = {name: sorted(str(path) for path in (folder / name).iterdir()) for name in ("figures", "tables")}
    headline = json.loads((folder / "headline.json").read_text(encoding="utf-8"))
    return json.dumps({**headline, "report": str(folder / index.name), "uri": (folder / index.name).as_uri(), **files})


@app.command()
@one_line
def convert(
    ctx: typer.Context,
    log: Log,
    format: Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")],  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    out: Annotated[Path, typer.Option(help="File to write: .parquet or .csv.")] = Path("jobs.parquet"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Convert a job log to the canonical table."""
    from gpudemand.jobs import write_jobs

    _check_suffix(out)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = _read(log, format, tz, origin)
        begin(f"Writing {len(jobs):,} jobs")
        write_jobs(jobs, out)
    typer.echo(out)


@app.command()
@one_line
def usage(
    ctx: typer.Context,
    log: Log,
    format: Format = "canonical",  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    by: By = "user",
    freq: Freq = "D",
    value: Annotated[str, typer.Option(help="gpu_hours, gpus, gpus_peak or jobs.")] = "gpu_hours",
    until: Until = None,
    out: Annotated[Path, typer.Option(help="File to write: .csv or .parquet.")] = Path("usage.csv"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write usage series: unique_id, ds, y."""
    from gpudemand.usage.series import usage_series

    _check_suffix(out)
    with steps(quiet=quiet) as begin:
        begin("Reading the log")
        # A canonical Parquet file is queried where it lies, however large it is.
        streamed = format == "canonical" and log.suffix == ".parquet"
        source = log if streamed else _read(log, format, tz, origin)
        begin("Adding up what was used")
        series = usage_series(source, by=by, freq=freq, value=value, until=until, tz=tz or "UTC")
        begin(f"Writing {len(series):,} rows")
        series.to_parquet(out, index=False) if out.suffix == ".parquet" else series.to_csv(out, index=False)
    typer.echo(out)


def _check_suffix(out: Path) -> None:
    from gpudemand._validation import InputError

    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"out={str(out)!r} must end in .parquet or .csv.")


@app.command()
@one_line
def formats(ctx: typer.Context, debug: Debug = False) -> None:
    """List the log formats that can be read, and what each needs to be told."""
    from gpudemand.jobs import formats as known

    table = known()
    width = table["name"].str.len().max()
    for name, description, needs in table[["name", "description", "needs"]].itertuples(index=False, name=None):
        typer.echo(f"{name:<{width}}  {description}" + (f"  (needs --{needs})" if needs else ""))


for command in (measure, cost, calibrate, devices):
    app.command()(command)


def main() -> None:
    """Run the command line; the entry point ``gpudemand``."""
    app(prog_name="gpudemand")
