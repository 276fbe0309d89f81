"""`TrainingRun`: everything that time and memory of a large model depend on; unknown options are None."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.large_models.parallel import LoRA, Parallel

if TYPE_CHECKING:
    from gpudemand.cost.hardware import Device

#: Optimizer -> bytes of its states a parameter, and whether weights are kept in single precision besides.
OPTIMIZERS = {
    "sgd": (0.0, True),
    "momentum": (4.0, True),
    "rmsprop": (4.0, True),
    "adagrad": (4.0, True),
    "adam": (8.0, True),
    "adamw": (8.0, True),
    "adamw_bf16": (4.0, False),
    "adamw_8bit": (2.0, False),
    "adafactor": (0.02, False),
    "muon": (4.0, True),
}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
CHECKPOINTING = (False, "selective", "full")
OFFLOAD = (None, "optimizer", "parameters", "all", "activations")
#: Whether logits are held whole with their copies in single precision, once, or never.
CROSS_ENTROPIES = ("plain", "fused", "fused_linear")
#: Kernels of PyTorch, or those that Megatron and Transformer Engine fuse.
KERNELS = ("plain", "fused")
#: Whether experts compute one after another, or all in one kernel.
EXPERTS = ("loop", "grouped")
#: Samples a replica takes at once that are tried where the number is not known.
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class TrainingRun:
    """A large model, its device and how it is trained; None is unknown.

    Parameters
    ----------
    model : Transformer
    device : Device
    seq_len : int
        Tokens of a sample; of an encoder-decoder those of the target.
    n_gpus : int, default=1
    parallel : Parallel, optional
        Unknown if None and there are several GPUs.
    micro_batch, accumulate : int, optional
        Samples a replica takes at once, and how often before a step; of these two and `global_batch`, one follows.
    global_batch : int, optional
        Samples a step, on all replicas together.
    precision : {"fp32", "tf32", "fp16", "bf16", "fp8"}, default="bf16"
    optimizer : str, optional
        A key of `OPTIMIZERS`; None is AdamW with states of unknown precision. Of ``adamw_bf16``, ``adamw_8bit`` and
        ``adafactor``, weights are kept in half precision only.
    checkpointing : {False, "selective", "full"}, optional
    adapter : LoRA, optional
    offload : {"optimizer", "parameters", "all", "activations"}, optional
        What waits in the memory of the host; all is parameters and states of the optimizer.
    attention : {"flash", "eager"}, default="flash"
    compiled : bool, default=False
    source_len : int, optional
        Tokens that the encoder of an encoder-decoder takes, by default `seq_len`, or what the model fixes.
    cross_entropy : {"plain", "fused", "fused_linear"}, optional
        Loss with copies of the logits in single precision; with one in half precision (kernels of Apex and
        FlashAttention, torchtune's chunked output); or computed with the head a chunk at a time, without whole logits
        (Liger, Cut Cross-Entropy). None is as `kernels`.
    kernels : {"plain", "fused"}, optional
        Of PyTorch, or fused as in Megatron and Transformer Engine. None is fused where the layout, or fp8 without
        PyTorch's sharding, is one that such stacks offer.
    experts : {"loop", "grouped"}, optional
        Whether the experts of a layer compute one after another (Transformers before version 5) or in one kernel for
        all. None is a loop in plain kernels that are not compiled, unless `expert` parallelism divides them.
    """

    model: Transformer
    device: Device
    seq_len: int
    n_gpus: int = 1
    parallel: Parallel | None = None
    micro_batch: int | None = None
    accumulate: int | None = None
    global_batch: int | None = None
    precision: str = "bf16"
    optimizer: str | None = "adamw"
    checkpointing: bool | str | None = None
    adapter: LoRA | None = None
    offload: str | None = None
    attention: str = "flash"
    compiled: bool = False
    source_len: int | None = None
    cross_entropy: str | None = None
    kernels: str | None = None
    experts: str | None = None

    def __post_init__(self) -> None:
        for name in ("seq_len", "n_gpus"):
            check_number(name, getattr(self, name), 1, integer=True)
        for name in ("micro_batch", "accumulate", "global_batch"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        check_choice("precision", self.precision, PRECISIONS)
        if self.experts is not None and not self.model.experts:
            raise InputError(f"experts={self.experts!r} is for mixtures of experts; {self.model.name} has none.")
        if self.optimizer is not None:
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("attention", self.attention, ("flash", "eager"))
        for name, choices in (("cross_entropy", CROSS_ENTROPIES), ("kernels", KERNELS), ("experts", EXPERTS)):
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        object.__setattr__(self, "checkpointing", checked_checkpointing(self.checkpointing))
        if self.offload not in OFFLOAD:
            names = "'optimizer', 'parameters', 'all' or 'activations'"
            raise InputError(f"offload={self.offload!r} is not known; it is {names}.")
        self._check_source()
        self._check_layout()

    def _check_source(self) -> None:
        if not self.model.source_share:
            if self.source_len is not None:
                raise InputError(f"{self.model.name} has no encoder; give one length, the tokens of a sample.")
            return
        fixed = self.model.parts[0].tokens
        source = int(check_number("source_len", self.source_len or fixed or self.seq_len, 1, integer=True))
        object.__setattr__(self, "source_len", source)

    def _check_layout(self) -> None:
        if self.parallel is None and self.n_gpus == 1:
            object.__setattr__(self, "parallel", Parallel(1))
        if self.parallel is not None:
            object.__setattr__(self, "parallel", self.parallel.resolved(self.n_gpus))
            self.layout.check_model(self.model)
            self._derive_batch()
        if self.adapter is not None:
            self.adapter.check_targets(self.model)

    def _derive_batch(self) -> None:
        """Of samples at once, accumulation and samples a step, the one that follows from the others."""
        assert self.parallel is not None
        micro, times, total = self.micro_batch, self.accumulate, self.global_batch
        replicas = self.parallel.data or 1
        if total is None:
            times = times or 1
            total = micro * times * replicas if micro else None
        elif micro is None and times is not None:
            micro = total // (times * replicas)
        elif micro is not None:
            times = times or total // (micro * replicas)
        if micro is not None and total != micro * (times or 1) * replicas:
            shown = f"micro_batch={micro} x accumulate={times} x data={replicas}"
            raise InputError(f"{shown} is not global_batch={total}; change one of them, or leave one out.")
        for name, value in (("micro_batch", micro), ("accumulate", times), ("global_batch", total)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        at_once = f"{self.micro_batch or '?'} at once x {self.accumulate or '?'}"
        parts = [at_once, self.optimizer or "adamw", self.precision]
        parts += [repr(self.adapter)] if self.adapter is not None else []
        parts += [f"checkpointing {self.checkpointing}"] if self.checkpointing else []
        parts += [f"{self.offload} in host memory"] if self.offload else []
        parts += [f"{self.cross_entropy} loss"] if self.cross_entropy else []
        parts += [f"{self.kernels} kernels"] if self.kernels else []
        parts += [f"{self.experts} experts"] if self.experts else []
        if self.n_gpus > 1:
            parts.append("layout unknown" if self.parallel is None else repr(self.parallel)[len("Parallel(") : -1])
        count = f"{self.n_gpus} x " if self.n_gpus > 1 else ""
        length = self.seq_len if self.source_len is None else f"{self.source_len} + {self.seq_len}"
        return f"{self.model.name} on {length} tokens: {', '.join(parts)}, {count}{self.device.name}"

    @property
    def layout(self) -> Parallel:
        """The layout; only of a run whose layout is known."""
        if self.parallel is None:
            raise InputError("the layout of this run is not known; give parallel.")
        return self.parallel

    @property
    def is_known(self) -> bool:
        """Whether layout, micro-batch and checkpointing are known."""
        return None not in (self.parallel, self.micro_batch, self.checkpointing) and self.layout.sharding is not None

    @property
    def trained_share(self) -> float:
        """Trained over all parameters."""
        return 1.0 if self.adapter is None else self.adapter.n_parameters(self.model) / self.model.n_parameters

    @property
    def is_mixed(self) -> bool:
        """Whether products are in lower precision than the weights that the optimizer updates."""
        return self.precision in ("fp16", "bf16", "fp8")

    @property
    def is_tuned(self) -> bool:
        """Whether kernels are fused; if nothing is said, whether only stacks that have them offer the layout."""
        if self.kernels is not None:
            return self.kernels == "fused"
        layout = self.layout
        split = self.precision == "fp8" or layout.tensor * layout.pipeline * layout.expert > 1
        return split and layout.sharding not in ("fsdp", "hsdp")

    @property
    def loops_over_experts(self) -> bool:
        """Whether experts compute one after another; if nothing is said, in plain stacks that do not divide them."""
        if self.experts is not None:
            return self.experts == "loop"
        return not (self.is_tuned or self.compiled or self.layout.expert > 1)

    @property
    def local_experts(self) -> float:
        """Experts of a layer on one GPU."""
        return self.model.experts / self.layout.expert

    @property
    def samples(self) -> int:
        """Samples a step on all GPUs together; if unknown, one of each replica."""
        replicas = self.n_gpus if self.parallel is None else self.parallel.data or 1
        return self.global_batch or replicas * (self.micro_batch or 1) * (self.accumulate or 1)

    @property
    def tokens(self) -> int:
        """Tokens a step, on all GPUs together; of an encoder-decoder those of the source."""
        return self.samples * (self.source_len or self.seq_len)

    @property
    def sample_flops(self) -> float:
        """Operations of forward and backward pass of a sample, nothing recomputed."""
        return sum(one.model.model_flops(one.seq_len) * one.seq_len for one in self.stacks)

    @functools.cached_property
    def stacks(self) -> tuple[TrainingRun, ...]:
        """The run of each stack of the model, on the tokens that pass it."""
        if not self.model.parts:
            return (self,)
        main, *parts = self.model.stacks
        main = replace(main, source_share=(self.source_len or 0) / self.seq_len)
        return (self._of(main, self.seq_len), *(self._of(one, self._length(one)) for one in parts))

    def _length(self, part: Transformer) -> int:
        return part.tokens or self.source_len or self.seq_len

    def _of(self, model: Transformer, seq_len: int) -> TrainingRun:
        """The run of one stack; what is checked of the whole model need not hold for it."""
        found = copy.copy(self)
        for name, value in (("model", model), ("seq_len", seq_len), ("source_len", None)):
            object.__setattr__(found, name, value)
        return found

    @property
    def tokens_at_once(self) -> float:
        """Tokens of a micro-batch on one GPU, before tensor parallelism."""
        return (self.micro_batch or 1) * self.seq_len / self.layout.context

    def with_batch(self, micro_batch: int) -> TrainingRun:
        """The run with other samples at once and, where they divide, the same samples a step."""
        replicas, total = self.layout.data or 1, self.global_batch
        times = total // (micro_batch * replicas) if total and total % (micro_batch * replicas) == 0 else 1
        return replace(self, micro_batch=micro_batch, accumulate=max(times, 1), global_batch=None)

    def micro_batches(self) -> list[int]:
        """Samples at once that the run may have: the given one, or those that divide the samples a step."""
        if self.micro_batch is not None:
            return [self.micro_batch]
        replicas = self.layout.data or 1
        share = max((self.global_batch or replicas * _MICRO_BATCHES[-1]) // replicas, 1)
        return [size for size in _MICRO_BATCHES if share % size == 0] or [share]


def checked_checkpointing(value: object) -> bool | str | None:
    """``False``, ``"selective"``, ``"full"`` (also for True) or None for unknown; anything else raises an error."""
    if value is not None and value not in (True, *CHECKPOINTING):
        raise InputError(f"checkpointing={value!r} is not known; it is False, 'selective' or 'full'.")
    return "full" if value is True else value
