"""The command line: parse, call, show progress. Heavy imports stay inside the commands, so that --help is instant."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
_FAILED = 2

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
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _one_line(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a user can mend into one line on stderr and exit code 2; warnings become one line each."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from gpudemand._validation import InputError

        context: Any = kwargs["ctx"]
        with _plain_warnings():
            try:
                command(*args, **kwargs)
            except (InputError, OSError) as error:
                if kwargs["debug"] or context.obj:
                    raise
                _say(error)
                raise typer.Exit(_FAILED) from None
            except Exception as error:  # the outermost place: whatever nobody foresaw is a bug, and says so in one line
                if kwargs["debug"] or context.obj:
                    raise
                _say(f"this is a bug ({type(error).__name__}: {error}); please report what --debug prints.")
                raise typer.Exit(_FAILED) from None

    return run


def _say(message: object) -> None:
    typer.echo("gpudemand: " + " ".join(str(message).split()), err=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    from gpudemand._validation import RejectedRowsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", RejectedRowsWarning)
        warnings.showwarning = lambda message, *_: _say(message)
        yield


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Give a function that names the step now begun; each is shown with the time it took, on stderr."""
    if quiet:
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def begin(step: str) -> None:
            finish()
            progress.add_task(step, total=1)

        def finish() -> None:
            for task in progress.task_ids:
                progress.update(task, completed=1)

        yield begin
        finish()


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
@_one_line
def report(
    ctx: typer.Context,
    log: Annotated[Path | None, typer.Argument(help="Job log; the bundled sample if there is none.")] = None,
    format: Format = "canonical",  # noqa: A002
    tz: Zone = None,
    origin: Origin = None,
    by: By = "user",
    freq: Freq = "D",
    horizon: Annotated[int, typer.Option(help="Bins to look ahead.")] = 28,
    installed: Annotated[float | None, typer.Option(help="GPUs installed; by default the most the log held.")] = None,
    target_utilization: Annotated[float, typer.Option(help="Share of the GPUs that mean demand may take.")] = 0.85,
    service_level: Annotated[float, typer.Option(help="Probability with which demand shall fit.")] = 0.95,
    lead_time: Annotated[str, typer.Option(help="From order to use, such as 90D.")] = "90D",
    until: Until = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("gpudemand-report"),
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the headline as JSON, and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """Write a report: one HTML page, its figures and its tables."""
    from gpudemand.datasets.load import load_jobs_sample
    from gpudemand.report import build_report

    with _steps(quiet=quiet) as begin:
        begin("Reading the log" if log else "Reading the bundled sample")
        jobs = _read(log, format, tz, origin) if log else load_jobs_sample()
        index = build_report(
            jobs,
            out,
            by=by,
            freq=freq,
            horizon=horizon,
            installed=installed,
            target_utilization=target_utilization,
            service_level=service_level,
            lead_time=lead_time,
            tz=tz or "UTC",
            until=until,
            progress=begin,
        )
    typer.echo(_as_json(index) if as_json else index.resolve().as_uri())


def _as_json(index: Path) -> str:
    folder = index.resolve().parent
    files = {name: sorted(str(path) for path in (folder / name).iterdir()) for name in ("figures", "tables")}
    headline = json.loads((folder / "headline.json").read_text(encoding="utf-8"))
    return json.dumps({**headline, "report": str(folder / index.name), "uri": (folder / index.name).as_uri(), **files})


@app.command()
@_one_line
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
    with _steps(quiet=quiet) as begin:
        begin("Reading the log")
        jobs = _read(log, format, tz, origin)
        begin(f"Writing {len(jobs):,} jobs")
        write_jobs(jobs, out)
    typer.echo(out)


@app.command()
@_one_line
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
    from gpudemand.usage import usage_series

    _check_suffix(out)
    with _steps(quiet=quiet) as begin:
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
@_one_line
def measure(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(help="Plan: a CSV file with a row a job.", show_default=False)],
    out: Annotated[Path, typer.Option(help="CSV file that receives the rows; an unfinished one is continued.")],
    timeout: Annotated[float, typer.Option(help="Seconds after which a job is given up.")] = 300.0,
    process: Annotated[str, typer.Option(help="fresh: a process a job; shared: for GPUs.")] = "fresh",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train every job of a plan for a few steps and record time and memory."""
    from gpudemand.cost import measure_training_cost

    with _rows(quiet=quiet) as show:
        measure_training_cost(plan, out, timeout_s=timeout, process=process, progress=show)
    typer.echo(out)


@contextmanager
def _rows(*, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Give a function that shows how many rows are done and how much time is left, on stderr."""
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gpudemand.units import format_seconds

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting")

        def show(progress: Any) -> None:
            row = f"{progress.row['framework']} {progress.row['network']}: {progress.row['status']}"
            left = f"{format_seconds(progress.left_s)} left, {row}"
            bar.update(task, completed=progress.done, total=progress.total, description=left)

        yield show


@app.command()
@_one_line
def formats(ctx: typer.Context, debug: Debug = False) -> None:
    """List the log formats that can be read, and what each needs to be told."""
    from gpudemand.jobs import formats as known

    table = known()
    width = table["name"].str.len().max()
    for name, what, needs in table[["name", "what", "needs"]].itertuples(index=False, name=None):
        typer.echo(f"{name:<{width}}  {what}" + (f"  (needs --{needs})" if needs else ""))


@app.command()
@_one_line
def devices(ctx: typer.Context, debug: Debug = False) -> None:
    """List the GPUs and CPUs that costs can be predicted for: memory, bandwidth, and peaks by precision."""
    from gpudemand.cost.devices import print_devices

    typer.echo(print_devices())


def main() -> None:
    """Run the command line; the entry point ``gpudemand``."""
    app(prog_name="gpudemand")
