"""What commands share: options, progress, errors, workers."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, fields
from fractions import Fraction
from typing import Annotated, Any

import typer

from gpudemand.study.settings import Settings

Seq = Annotated[str | None, typer.Option(help="Large models: tokens of a sample, or of source and target (512,128).")]
Data = Annotated[int | None, typer.Option(help="Large models: copies of the model, each on its own samples.")]
Tensor = Annotated[int | None, typer.Option(help="Large models: GPUs that share each layer.")]
Pipeline = Annotated[int | None, typer.Option(help="Large models: stages of consecutive layers, each on its GPUs.")]
VirtualPipeline = Annotated[int | None, typer.Option(help="Large models: parts of a stage, which are interleaved.")]
Context = Annotated[int | None, typer.Option(help="Large models: GPUs that share the tokens of a sample.")]
Expert = Annotated[int | None, typer.Option(help="Large models: GPUs that the experts of a layer are spread over.")]
ExpertTensor = Annotated[
    int | None, typer.Option(help="Large models: GPUs that share each matrix of an expert, by default as --tensor.")
]
Zero = Annotated[int | None, typer.Option(help="Large models: level of ZeRO, 0 to 3.")]
Sharding = Annotated[str | None, typer.Option(help="Large models: none, zero1, zero2, zero3, fsdp or hsdp.")]
MicroBatch = Annotated[int | None, typer.Option(help="Samples at once on each GPU.")]
Accumulate = Annotated[int | None, typer.Option(help="Micro-batches whose gradients are summed before a step.")]
GlobalBatch = Annotated[int | None, typer.Option(help="Large models: samples a step on all GPUs.")]
Rank = Annotated[int | None, typer.Option(help="Large models: rank of low-rank adapters.")]
Bits = Annotated[int | None, typer.Option(help="Large models: bits of frozen weights with --lora: 16, 8 or 4.")]
Offload = Annotated[
    str | None, typer.Option(help="Large models: optimizer, parameters, all or activations in host memory.")
]
Loss = Annotated[str | None, typer.Option(help="Large models: plain, fused, or fused_linear as Liger's.")]
Kernels = Annotated[str | None, typer.Option(help="Large models: plain, or fused as in Megatron.")]
StackYear = Annotated[float | None, typer.Option(help="Large models: year in which the software was released.")]
Experts = Annotated[str | None, typer.Option(help="Large models: loop over the experts, or grouped products.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs, instead of a table.")]
Format = Annotated[str, typer.Option(help="Format of the log; see `gpudemand formats`.")]
Origin = Annotated[str | None, typer.Option(help="Time zero of a log whose times are in seconds.")]
GpuShare = Annotated[
    list[str] | None,
    typer.Option("--gpu-share", metavar="NAME=SHARE", help="What a device of a type counts: a100l.1=1/8. Repeatable."),
]
Columns = Annotated[
    str | None, typer.Option(metavar="JOBID,USER,...", help="Of sacct without a header: the columns of --format.")
]
NoLimits = Annotated[bool, typer.Option("--no-limits", help="Read a log of any size.")]

_OPTIONS = {each.name: each for each in fields(Settings)}
_HELP = {name: each.metadata.get("help", "") for name, each in _OPTIONS.items()}
Zone = Annotated[str | None, typer.Option(help=_HELP["tz"])]
By = Annotated[str, typer.Option(help=_HELP["by"])]
Freq = Annotated[str, typer.Option(help=_HELP["freq"])]
Until = Annotated[str | None, typer.Option(help=_HELP["until"])]
#: How options of a study are typed, by the name of their type.
_TYPED: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "Duration | None": str,
    "object": str,
    "Clusters": str,
    "Installed": str,
    "LeadTime": str,
    "Prices": tuple[float, float],
}


def _typed(each: Field[Any]) -> Any:
    kind = _TYPED[str(each.type)]
    about = typer.Option(help=_HELP[each.name], metavar=each.metadata["metavar"])
    return Annotated[kind if each.default is not None else kind | None, about]


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


_OF_STUDY = [
    _parameter(each.name, _typed(each), each.default) for each in _OPTIONS.values() if each.metadata.get("typed", True)
]
_OF_LOG = [
    _parameter("format", Format, "canonical"),
    _parameter("tz", Zone, None),
    _parameter("origin", Origin, None),
    _parameter("gpu_share", GpuShare, None),
    _parameter("columns", Columns, None),
    _parameter("no_limits", NoLimits, False),
]


def _with_parameters(command: Callable[..., None], place: str, added: Sequence[inspect.Parameter]) -> Any:
    """The command, with those that it has not itself before one of its parameters; it finds them in its context."""
    own = inspect.signature(command, eval_str=True)
    given = [*own.parameters.values()]
    at = [*own.parameters].index(place)
    new = [each for each in added if each.name not in own.parameters]
    command.__signature__ = own.replace(parameters=[*given[:at], *new, *given[at:]])  # type: ignore[attr-defined]
    return command


def takes_study_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a study, before ``--out``."""
    return _with_parameters(command, "out", _OF_STUDY)


def takes_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a log is read, before ``--quiet``; see `log_options`."""
    return _with_parameters(command, "quiet", _OF_LOG)


def log_options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `read_jobs` and `read_log` from the options of a command."""
    from gpudemand.jobs.files import LIMITS

    given = {name: asked[name] for name in ("format", "tz", "origin", "columns")}
    return given | {"gpu_share": parse_shares(asked["gpu_share"]), "limits": None if asked["no_limits"] else LIMITS}


def parse_shares(given: Sequence[str] | None) -> dict[str, float]:
    """Shares of a GPU by name, from ``name=share``.

    >>> parse_shares(["a100l.1=1/8", "dcu=1"])
    {'a100l.1': 0.125, 'dcu': 1.0}
    """
    from gpudemand._validation import InputError
    from gpudemand.jobs.read import MOST_GPUS

    shares = {}
    for text in given or ():
        name, _, share = text.rpartition("=")
        try:
            shares[name] = float(Fraction(share))
        except (ValueError, ZeroDivisionError):
            name = ""
        if not name or not 0 <= shares[name] <= MOST_GPUS:
            raise InputError(f"--gpu-share {text!r} is not a type and what one of it counts; write a100l.1=1/8.")
    return shares


def _option_names(context: Any) -> dict[str, str]:
    """Options by argument, without those that a plan states: they are called there as their argument is."""
    names = {each.name: each.opts[0] for each in context.command.params if each.opts[0].startswith("--")}
    if "plan" in names and context.params["plan"] is not None:
        source = {name: context.get_parameter_source(name) for name in names}
        typed = {name for name in names if source[name] and source[name].name != "DEFAULT"}
        return {name: option for name, option in names.items() if name in typed or name not in _OPTIONS}
    return names


_FAILED = 2
INTERRUPTED = 130

Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Report errors of a command as one line on stderr with exit code 2 (not with ``--debug``), and warnings, too."""
    own = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        """Run the command with those of the parameters that are its own."""
        from gpudemand._validation import InputError, TomlError, memory_errors

        context: Any = given["ctx"]
        names = _option_names(context)
        with _plain_warnings(names):
            try:
                with memory_errors():
                    command(**{name: given[name] for name in own.parameters})
            except (BrokenPipeError, typer.Exit):  # the reader of a pipe has seen enough; the command says how it ended
                raise
            except KeyboardInterrupt:
                print_message("interrupted; run the same command again.")
                raise typer.Exit(INTERRUPTED) from None
            except (InputError, OSError, MemoryError) as error:
                if given["debug"] or context.obj:
                    raise
                said = str(error) if isinstance(error, TomlError) else in_the_shell(str(error), names)
                print_message(said)
                raise typer.Exit(_FAILED) from None
            except Exception as error:  # outermost handler: an unexpected error is a bug
                if given["debug"] or context.obj:
                    raise
                print_message(f"this is a bug ({type(error).__name__}: {error}); please report the output of --debug.")
                raise typer.Exit(_FAILED) from None

    ctx, debug = _parameter("ctx", typer.Context), _parameter("debug", Debug, False)
    run.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*{"ctx": ctx, **own.parameters, "debug": debug}.values()]
    )
    return run


#: What messages give in the words of Python and, in brackets, of the shell.
_BOTH = re.compile(
    r"\w+(?:=(?:\{[^}]*\}|\([^)]*\)|'[^']*'|\S*))? \((?:in the shell )?(?P<in>--[^)]+|(?<=in the shell )[^)]+)\)"
    r"|(?P<before>--[\w-]+) \(\w+=\w+\)"
)
_QUOTED = r"(?<!\w)'(?:[^'\\]|\\.)*'|(?<!\w)\"(?:[^\"\\]|\\.)*\""
#: Arguments of Python whose options have other names.
_CALLED = {
    "n_gpus": "gpus",
    "batch_size": "batch",
    "input_shape": "input",
    "input_dtype": "dtype",
    "timeout_s": "timeout",
}


def in_the_shell(text: str, names: Mapping[str, str]) -> str:
    """Message in which arguments have the names of a command's options.

    >>> in_the_shell("pass tz=, such as tz='UTC'.", {"tz": "--tz"})
    "pass --tz, such as --tz 'UTC'."

    What is in quotes, and a name that is not the subject of a sentence, may be of the user's data:

    >>> in_the_shell("tz must be a zone, as 'tz=UTC'; the log has user, tz, end.", {"tz": "--tz"})
    "--tz must be a zone, as 'tz=UTC'; the log has user, tz, end."
    """
    options = {**names, **{name: names[own] for name, own in _CALLED.items() if own in names}}
    name = "|".join(options)
    argument = re.compile(
        rf"{_QUOTED}|(?<![\w-])(?P<valued>{name})=(?=['\"\w{{+-])|(?<![\w-])(?P<named>{name})="
        rf"|(?:^|(?<=[.;:] ))(?P<subject>{name})(?= (?:must|has|is)\b)"
    )

    def option(match: re.Match[str]) -> str:
        given = match.lastgroup
        return match[0] if given is None else options[match[given]] + " " * (given == "valued")

    return argument.sub(option, _BOTH.sub(lambda match: match["in"] or match["before"], text))


def print_message(message: object) -> None:
    """Print a message as one line on stderr, in which what a server or a log said cannot command the terminal."""
    line = " ".join(str(message).split())
    printable = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    typer.echo(f"gpudemand: {printable}", err=True)


@contextmanager
def _plain_warnings(names: Mapping[str, str]) -> Iterator[None]:
    from gpudemand._validation import RejectedRowsWarning, UnlikelyJobsWarning

    with warnings.catch_warnings():
        for kind in (RejectedRowsWarning, UnlikelyJobsWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_: print_message(in_the_shell(str(message), names))
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


Dask = Annotated[
    str | None,
    typer.Option(metavar="WHERE", help="Run on Dask's workers: local, or the address of a scheduler, tcp://host:8786."),
]


@contextmanager
def workers(where: str | None) -> Iterator[None]:
    """Run what is parallel on Dask's workers: of this machine (``local``), of a scheduler (its address), or on none."""
    if where is None:
        yield
        return
    from gpudemand._validation import InputError

    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError('--dask needs Dask; install it: pip install "gpudemand[scale]".') from error
    if where == "local":
        host = "127.0.0.1"  # nobody else
        with LocalCluster(host=host, threads_per_worker=1, dashboard_address=f"{host}:0") as cluster, Client(cluster):
            yield
        return
    try:
        client = Client(where, timeout=5)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {where!r}; start one with `dask scheduler`, or use --dask local."
        ) from error
    with client:
        yield
