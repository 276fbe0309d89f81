"""What every command shares: errors in one line, steps with their times, and the options that all have."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec

import typer

P = ParamSpec("P")
_FAILED = 2

Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def one_line(command: Callable[P, None]) -> Callable[P, None]:
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
def steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
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
