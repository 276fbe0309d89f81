"""Error handling, progress display and options that all commands share."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec

import typer

P = ParamSpec("P")
_FAILED = 2
INTERRUPTED = 130

Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def one_line(command: Callable[P, None]) -> Callable[P, None]:
    """Report errors of a command as one line on stderr with exit code 2, and warnings as one line each."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        """Run the command; without ``--debug``, an error becomes a message and ``typer.Exit`` with code 2."""
        from gpudemand._validation import InputError

        context: Any = kwargs["ctx"]
        with _plain_warnings():
            try:
                command(*args, **kwargs)
            except (BrokenPipeError, typer.Exit):  # the reader of a pipe has seen enough; the command says how it ended
                raise
            except KeyboardInterrupt:
                print_message("interrupted; run the same command again.")
                raise typer.Exit(INTERRUPTED) from None
            except (InputError, OSError) as error:
                if kwargs["debug"] or context.obj:
                    raise
                print_message(error)
                raise typer.Exit(_FAILED) from None
            except Exception as error:  # outermost handler: an unexpected error is a bug
                if kwargs["debug"] or context.obj:
                    raise
                print_message(f"this is a bug ({type(error).__name__}: {error}); please report the output of --debug.")
                raise typer.Exit(_FAILED) from None

    return run


def print_message(message: object) -> None:
    """Print a message as one line on stderr."""
    typer.echo("gpudemand: " + " ".join(str(message).split()), err=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    from gpudemand._validation import RejectedRowsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", RejectedRowsWarning)
        warnings.showwarning = lambda message, *_: print_message(message)
        yield


@contextmanager
def steps(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that begins a named step; steps are shown on stderr with their durations."""
    if quiet:
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def begin(step: str) -> None:
            """Complete the running step and begin the next."""
            finish()
            progress.add_task(step, total=1)

        def finish() -> None:
            """Mark all steps as completed."""
            for task in progress.task_ids:
                progress.update(task, completed=1)

        yield begin
        finish()
