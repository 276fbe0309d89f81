"""What tracing PyTorch and Keras have in common: inputs, errors, and the recorder of operators."""

from __future__ import annotations

import importlib
import math
import os
import sys
import sysconfig
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np

from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.operators import BATCHED, Kernel, Operator
from gpudemand.units import format_number_of


class Caveat(NamedTuple):
    """What may be missing in a trace, in the words of a warning, and the factor by which amounts may be wrong."""

    text: str
    error_scale: float = 1.0


class Traced(NamedTuple):
    """A traced network: operator calls, edges between their positions, further fields of `OpGraph`, and kernels.

    `rows`: extent of the first axis of all results, 0 if they differ or it is not known.
    """

    operators: list[Operator]
    edges: set[tuple[int, int]]
    attributes: dict[str, Any]
    kernels: Sequence[Kernel] = ()
    caveats: Sequence[Caveat] = ()
    rows: int = 0

    def flops_at(self, batch: int) -> float:
        """Operations of the forward pass a sample, those that are independent of the batch shared out."""
        return sum(call.flops + call.fixed_flops / batch for call in self.operators)


class Recorder:
    """Collects the operator calls of a trace and links producers to consumers.

    Data is identified by a hashable key, such as the identity of a tensor's storage, which all views share: whatever
    reads a key depends on the operator that last wrote it.

    `batch`: samples in the traced batch; amounts are divided by it, unless an operator reads parameters alone.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._calls: list[Operator] = []
        self._edges: set[tuple[int, int]] = set()
        self._producer: dict[Hashable, int | None] = {}
        self._batched: set[Hashable] = set()
        self._saved: set[Hashable] = set()
        self._fixed: set[Hashable] = set()
        self._constants: set[Hashable] = set()
        self._seen_parameters: set[Hashable] = set()
        #: Whether an operator reads parameters alone, or saves a constant, which may be as large for every batch.
        self.has_fixed = False

    def feed(self, key: Hashable, *, batched: bool) -> None:
        """Declare data without a producer: an input of the network (`batched`) or a parameter."""
        self._producer[key] = None
        if batched:
            self._batched.add(key)

    def declare_fixed(self, key: Hashable) -> None:
        """Declare data that the network has before its forward pass, whatever the batch."""
        self._fixed.add(key)

    def declare_constant(self, key: Hashable) -> None:
        """Declare data that a forward pass makes of neither inputs nor parameters."""
        self._constants.add(key)

    def is_live(self, key: Hashable) -> bool:
        """Whether data depends on inputs or parameters; everything else is a constant."""
        return key in self._producer

    def alias(self, key: Hashable, of: Hashable) -> None:
        """Declare that `key` holds the same data as `of`."""
        if of in self._producer:
            self._producer[key] = self._producer[of]
        if of in self._batched:
            self._batched.add(key)

    def producer(self, key: Hashable) -> Operator | None:
        """Return the operator that wrote `key`, or None."""
        position = self._producer.get(key)
        return None if position is None else self._calls[position]

    def fuse(self, key: Hashable, into: Hashable, parameters: dict[Hashable, int], weight_bytes: float) -> None:
        """Fuse a call that wrote `key`, such as the addition of a bias, into the operator that wrote `into`."""
        position = self._producer[into]
        if position is None:
            raise ValueError("no operator has written this data")
        call = self._calls[position]
        self._calls[position] = call._replace(
            parameters=call.parameters + self._new_parameters(parameters), weight_bytes=call.weight_bytes + weight_bytes
        )
        self.alias(key, of=into)

    def _new_parameters(self, parameters: dict[Hashable, int]) -> int:
        new = {key: count for key, count in parameters.items() if key not in self._seen_parameters}
        self._seen_parameters.update(new)
        return sum(new.values())

    def add(
        self,
        call: Operator,
        *,
        reads: Iterable[Hashable],
        writes: Iterable[Hashable],
        parameters: dict[Hashable, int],
    ) -> None:
        """Append a call, with shape and amounts for the traced batch; `parameters` and `saved_bytes` are set here.

        A lookup in a table (a ``Gather`` with weights) reads as many bytes of it as it writes.
        """
        position, sources, results = len(self._calls), list(reads), list(writes)
        is_batched = bool(self._batched.intersection(sources))
        if is_batched:
            self._batched.update(results)
        self.has_fixed |= not is_batched
        producers = (self._producer.get(key) for key in sources)
        self._edges.update((producer, position) for producer in producers if producer is not None)
        self._producer.update(dict.fromkeys(results, position))
        is_lookup = call.type == "Gather" and call.weight_bytes > 0
        call = call._replace(
            output_shape=single_sample(call.output_shape, self._batch) if is_batched else call.output_shape,
            parameters=self._new_parameters(parameters),
            weight_bytes=0.0 if is_lookup else call.weight_bytes,
            bytes_read=call.bytes_read + (call.bytes_written if is_lookup else 0.0),
        )
        totals = {name: getattr(call, name) for name in BATCHED}
        self._calls.append(call._replace(**_split(totals, {} if is_batched else totals, self._batch)))

    def save(self, key: Hashable, n_bytes: float) -> None:
        """Note that the latest operator saves data for the backward pass, unless it is saved already."""
        if key not in self._saved and self._calls:
            self._saved.add(key)
            call = self._calls[-1]
            is_live = self.is_live(key)
            self.has_fixed |= key in self._constants and not is_live
            if key in self._fixed or (is_live and key not in self._batched):
                self._calls[-1] = call._replace(fixed_saved_bytes=call.fixed_saved_bytes + n_bytes)
            else:
                self._calls[-1] = call._replace(saved_bytes=call.saved_bytes + n_bytes / self._batch)

    def traced(self, **attributes: Any) -> Traced:
        """Return what was recorded; `attributes` are the fields of `OpGraph` that the tracer sets."""
        return Traced(self._calls, self._edges, attributes)


def with_fixed(first: Sequence[Operator], second: Sequence[Operator], batch: int) -> list[Operator]:
    """Operators with what does not grow set apart, from those recorded with a batch and with twice as many samples.

    The first are returned as they are if the second do not correspond to them, as those of a loop over the samples.
    """
    if [call[:4] for call in first] != [call[:4] for call in second]:
        return list(first)
    return [_with_fixed(*calls, batch) for calls in zip(first, second, strict=True)]


def _with_fixed(call: Operator, other: Operator, batch: int) -> Operator:
    once, twice = _totals(call, batch), _totals(other, 2 * batch)
    fixed = {name: min(max(2.0 * once[name] - twice[name], 0.0), once[name]) for name in BATCHED}
    grows = call.output_shape != other.output_shape
    shape = single_sample(call.output_shape, batch) if grows else call.output_shape
    return call._replace(output_shape=shape, **_split(once, fixed, batch))


def _totals(call: Operator, batch: int) -> dict[str, float]:
    """Amounts of a whole batch."""
    return {name: batch * getattr(call, name) + getattr(call, f"fixed_{name}") for name in BATCHED}


def _split(totals: dict[str, float], fixed: dict[str, float], batch: int) -> dict[str, Any]:
    """Fields of an operator: amounts of a sample, and fixed ones."""
    parts: dict[str, Any] = {f"fixed_{name}": fixed.get(name, 0.0) for name in BATCHED}
    return parts | {name: (totals[name] - parts[f"fixed_{name}"]) / batch for name in BATCHED}


def single_sample(shape: Sequence[int], batch: int) -> tuple[int, ...]:
    """Return a traced shape with a batch of one.

    The batch is the first axis as long as the batch, or else folded into the first axis that is a multiple of it.
    """
    extents = list(shape)
    whole = [axis for axis, extent in enumerate(extents) if extent == batch]
    folded = [axis for axis, extent in enumerate(extents) if extent and extent % batch == 0]
    for axis in (whole or folded)[:1]:
        extents[axis] //= batch
    return tuple(extents)


def most_common_type(sizes: Iterable[tuple[str, int]]) -> str:
    """Of the types that networks compute in, that of most elements, from types and numbers of elements."""
    counts = dict.fromkeys(("float32", "float16", "bfloat16", "float64"), 0)
    for name, size in sizes:
        if name in counts:
            counts[name] += size
    return max(counts, key=counts.__getitem__)


#: Batch size of a trace: batch normalisation cannot train on a single value.
BATCH = 2
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128")
_HOW = "give the shape of one sample, such as (3, 224, 224), or a list of such shapes for several inputs"


#: What to do about networks that take other things than tensors.
WRAP = (
    "wrap the network in a module that takes tensors: class Wrapped(torch.nn.Module) with __init__(self, net): "
    "super().__init__(); self.net = net and forward(self, a, b): return self.net([a, b])"
)


class InputSpec(NamedTuple):
    """One input: shape with the batch, at `axis`, None if it has none; name, example tensor and dtype if given.

    `samples`: batch of an example whose rows are no samples, as the numbers in bags; otherwise 0.
    """

    name: str | None
    shape: tuple[int, ...]
    example: Any
    dtype: str | None
    axis: int | None = 0
    samples: int = 0

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape without the batch."""
        return self.shape if self.axis is None else (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def along(self, axis: int) -> InputSpec:
        """The input with its batch at another axis; an example has its shape whatever the axis."""
        shape = (*self.shape[1 : axis + 1], *self.shape[:1], *self.shape[axis + 1 :])
        return self._replace(shape=shape if self.example is None else self.shape, axis=axis)

    def aligned(self, batch: int, axes: Iterable[int | None]) -> InputSpec:
        """The input with its batch at the first of some axes that is as long; an example may have none there."""
        found = next((axis for axis in axes if axis is not None and self.shape[axis : axis + 1] == (batch,)), None)
        return self if self.example is None or self.samples else self._replace(axis=found)

    def grown(self, batch: int) -> InputSpec:
        """The input with twice as many samples, if it is one of `batch` samples."""
        if self.axis is None:
            return self
        rows = self.shape[self.axis] if self.shape else 0
        more = rows // batch * batch if self.samples or rows == batch else 0
        return (
            self._replace(shape=(*self.shape[: self.axis], rows + more, *self.shape[self.axis + 1 :])) if more else self
        )


def read_inputs(input_shape: Any, input_dtype: Any) -> list[InputSpec]:
    """Normalise shapes, example tensors and dtypes."""
    named = _named(plain_shape(input_shape))
    dtypes = _dtypes(input_dtype, [name for name, _ in named])
    specs = [_spec(name, item, dtype) for (name, item), dtype in zip(named, dtypes, strict=True)]
    if not specs:
        raise InputError(f"input_shape is empty; {_HOW}.")
    return with_batch(specs, batch_of(specs))


def batch_of(specs: Sequence[InputSpec]) -> int:
    """Batch size of the inputs: of the first that has a batch."""
    return next((spec.samples or spec.shape[spec.axis] for spec in specs if spec.shape and spec.axis is not None), 1)


def with_batch(specs: Sequence[InputSpec], batch: int, axes: Sequence[int] = (0,)) -> list[InputSpec]:
    """The inputs with a batch of so many samples, which examples have at the first of some axes that is as long."""
    return [spec.aligned(batch, axes) for spec in specs]


def input_fields(specs: Sequence[InputSpec]) -> dict[str, Any]:
    """Fields of `OpGraph` about the inputs."""
    fixed = [spec for spec in specs if spec.axis is None]
    return {
        "input_shapes": tuple(spec.sample for spec in specs if spec.axis is not None),
        "fixed_input_bytes": float(sum(math.prod(spec.shape) * _item_size(spec.example.dtype) for spec in fixed)),
    }


def _item_size(dtype: Any) -> int:
    """Bytes of an element; types of TensorFlow call them otherwise."""
    return int(getattr(dtype, "itemsize", 0) or getattr(dtype, "size", 4))


def input_caveats(specs: Sequence[InputSpec]) -> list[Caveat]:
    """What is said of example inputs that are as large for every batch; numbers are so, of course."""
    shapes = [str(spec.shape) for spec in specs if spec.axis is None and math.prod(spec.shape) > 1]
    what = f"the input of shape {shapes[0]} does" if len(shapes) == 1 else f"inputs of shape {', '.join(shapes)} do"
    samples = format_number_of("sample", batch_of(specs))
    return [Caveat(f"{what} not grow with the batch, which is of {samples} in the examples")] if shapes else []


def plain_shape(input_shape: Any) -> Any:
    """An array of whole numbers as the shape that it lists; other arrays are examples, and stay as they are."""
    is_list = isinstance(input_shape, np.ndarray) and input_shape.ndim == 1 and input_shape.dtype.kind in "iu"
    return tuple(input_shape.tolist()) if is_list else input_shape


def _named(input_shape: Any) -> list[tuple[str | None, Any]]:
    if isinstance(input_shape, Mapping):
        return list(input_shape.items())
    is_several = isinstance(input_shape, (list, tuple)) and not _is_shape(input_shape)
    # Numbers that are no extents, such as (3, 32.0), are one shape that is wrong.
    if not is_several or all(item is None or isinstance(item, (int, float)) for item in input_shape):
        return [(None, input_shape)]
    return [(None, item) for item in input_shape]


def _spec(name: str | None, item: Any, dtype: str | None) -> InputSpec:
    if _is_array(item):
        shape = tuple(int(extent) for extent in item.shape)
        if 0 in shape:
            raise InputError(f"an example input has the shape {shape}, which is empty; pass at least one sample.")
        return InputSpec(name, shape, item, dtype)
    if not _is_shape(item):
        is_numbers = isinstance(item, (list, tuple)) and all(part is None or np.isscalar(part) for part in item)
        is_nested = isinstance(item, (list, tuple, Mapping, bool)) and not is_numbers
        hint = f"; for a list, a dict or a flag, {WRAP}" if is_nested else ""
        raise InputError(f"input_shape={shorten(str(item))} is no shape; {_HOW}{hint}.")
    if any(extent < 1 for extent in item):
        raise InputError(f"input_shape={tuple(item)} holds an extent below 1; {_HOW}, without the batch.")
    return InputSpec(name, (BATCH, *(int(extent) for extent in item)), None, dtype)


def _dtypes(input_dtype: Any, names: list[str | None]) -> list[str | None]:
    if isinstance(input_dtype, Mapping):
        chosen = [input_dtype.get(name) for name in names]
    elif isinstance(input_dtype, (list, tuple)):
        chosen = list(input_dtype)
    else:
        chosen = [input_dtype] * len(names)
    if len(chosen) != len(names):
        raise InputError(f"input_dtype= names {len(chosen)} types for {len(names)} inputs; give one for each.")
    return [None if dtype is None else _dtype(dtype) for dtype in chosen]


def _dtype(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"input_dtype={dtype!r} is not known.{nearest(name, DTYPES)} Choose from {', '.join(DTYPES)}.")
    return name


def _is_shape(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and all(
        isinstance(extent, (int, np.integer)) and not isinstance(extent, bool) for extent in item
    )


def _is_array(item: Any) -> bool:
    return hasattr(item, "shape") and hasattr(item, "dtype")


def user_line(error: BaseException, tracer: str, *libraries: str) -> str:
    """Innermost line of a traceback outside the folder of the tracer, some libraries and the standard library.

    `tracer` and `libraries` are ``__file__``. Returns ``" at model.py, line 12 (if x.sum() > 0:)"``, or nothing.
    """
    skipped = {Path(file).parent for file in (tracer, *libraries)}
    for frame in reversed(extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not _is_standard_library(path) and not skipped.intersection(path.parents):
            return f" at {path.name}, line {frame.lineno} ({shorten(frame.line or '?', 80)})"
    return ""


def call_error(
    what: str, specs: Sequence[InputSpec], place: str, reason: str, error: BaseException, wrap: str = WRAP
) -> InputError:
    """Error of a call that fails on the traced inputs by `error`, perhaps as it wants something else than tensors."""
    shapes = ", ".join(str(spec.shape) for spec in specs)
    check = "check input_shape (without the batch) and input_dtype ('int64' for tokens), and that the model runs"
    advice = check
    if isinstance(error, (TypeError, KeyError, IndexError, AttributeError)):
        advice = f"if it takes a list, a dict or flags, {wrap}"
    elif isinstance(error, NotImplementedError) or "Unsupported" in type(error).__name__:
        advice = (
            "give the operator a shape by torch.library.register_fake, pad nested tensors, or trace without that line"
        )
    return InputError(f"{what} fails on input of shape {shapes}{place}: {reason}; {advice}.")


def value_error(what: str, place: str, select: str) -> InputError:
    """Error of a call that branches on the values of a traced tensor."""
    return InputError(
        f"{what} depends on the values of a tensor{place}, which are unknown in a trace; express it with {select}, "
        "with masks that multiply or for a fixed number of elements, or trace a module without that line."
    )


def first_line(error: BaseException, text: str | None = None) -> str:
    """Type of an error and the first line of its text."""
    lines = (str(error) if text is None else text).strip().splitlines()
    return f"{type(error).__name__}: {shorten(lines[0], 200)}" if lines else type(error).__name__


def _is_standard_library(path: Path) -> bool:
    inside = str(path).startswith("<frozen") or Path(sysconfig.get_path("stdlib")) in path.parents
    return inside and "site-packages" not in path.parts


def import_without_triton() -> None:
    """Import what would import Triton, whose library ends a process that has TensorFlow's, without it."""
    if "tensorflow" in sys.modules and "triton" not in sys.modules:
        sys.modules["triton"] = None  # type: ignore[assignment]  # to import it is an ImportError
        try:
            for name in ("torch._dynamo", "torch.utils.flop_counter"):
                importlib.import_module(name)
        finally:
            del sys.modules["triton"]


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Import TensorFlow without its messages, written to the file descriptor before logging can be configured."""
    if "tensorflow" in sys.modules:
        yield
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
