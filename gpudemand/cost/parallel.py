"""`Parallel` and `LoRA`: how a job is laid out over GPUs, and adapters that are trained instead of weights."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.transformer import Matrix, Transformer

#: What is divided among the GPUs of data parallelism: optimizer states (``zero1``), also gradients (``zero2``), also
#: parameters (``zero3``, ``fsdp``; ``hsdp`` within a node only).
SHARDING = ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp")
_DEGREES = ("tensor", "pipeline", "virtual_pipeline", "context", "expert", "expert_tensor")
_MAY_BE_UNKNOWN = ("data", "virtual_pipeline", "expert", "expert_tensor")
#: Names of groups of matrices that adapters are put on.
_GROUPS = {
    "all-linear": None,
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"),
    "qv": ("q_proj", "v_proj", "qkv_proj"),
    "qkv": ("q_proj", "k_proj", "v_proj", "qkv_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj", "gate_up_proj"),
}


@dataclass(frozen=True)
class Parallel:
    """Layout of a training job over its GPUs.

    Parameters
    ----------
    data : int, optional
        Replicas of the model; by default the GPUs over the product of the degrees below.
    tensor, pipeline, context : int, default=1
        GPUs that share each matrix, that hold a part of the layers each, and that share each sequence.
    virtual_pipeline, expert : int, optional
        Parts of the layers on each GPU of a pipeline (interleaving), and GPUs (of those of data, context and tensor
        parallelism) that share the experts. None is unknown: what is usual is assumed, and the intervals are wider.
    sharding : {"none", "zero1", "zero2", "zero3", "fsdp", "hsdp"} or None, default="none"
        What data parallelism divides: nothing, the optimizer states, also gradients, also parameters (of ``hsdp``
        within a node only); None is unknown. Megatron's distributed optimizer is ``zero1``.
    sequence : bool, default=True
        With tensor parallelism, activations between the matrix products are divided too.
    expert_tensor : int, optional
        GPUs that share each matrix of an expert. By default `tensor`, as in Megatron; 1 where `expert` leaves no room
        for it, as it does not divide the GPUs of data and context parallelism.

    Raises
    ------
    InputError
        For a degree that is no whole number of at least 1, an unknown sharding, parts of a pipeline without one, or
        parameters that both a pipeline and sharding would divide.

    Examples
    --------
    >>> Parallel(tensor=8, sharding="zero1").resolved(64)
    Parallel(data=8, tensor=8, zero1)
    """

    data: int | None = None
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int | None = None
    context: int = 1
    expert: int | None = None
    sharding: str | None = "none"
    sequence: bool = True
    expert_tensor: int | None = None

    def __post_init__(self) -> None:
        for name in ("data", *_DEGREES):
            if name not in _MAY_BE_UNKNOWN or getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        if self.sharding is not None:
            check_choice("sharding", self.sharding, SHARDING)
        if self.virtual_degree > 1 and self.pipeline == 1:
            raise InputError("virtual_pipeline= divides the stages of a pipeline; give pipeline=, or leave it out.")
        if self.shards_parameters and self.pipeline > 1:
            raise InputError(f"sharding={self.sharding!r} gathers all layers; with pipeline use 'zero1' or 'none'.")

    @property
    def model(self) -> int:
        """GPUs that hold one replica."""
        return self.tensor * self.pipeline * self.context

    @property
    def expert_degree(self) -> int:
        """GPUs that share the experts; 1 where unknown."""
        return self.expert or 1

    @property
    def expert_tensor_degree(self) -> int:
        """GPUs that share each matrix of an expert; of a layout whose `data` is known."""
        return self.expert_tensor or (self.tensor if self.replicas % self.expert_degree == 0 else 1)

    @property
    def expert_split(self) -> int:
        """GPUs that hold one copy of the experts of a layer; of a layout whose `data` is known."""
        return self.expert_degree * self.expert_tensor_degree

    @property
    def expert_replicas(self) -> int:
        """GPUs that hold the same experts, or divide them; of a layout whose `data` is known."""
        return max(self.replicas * self.tensor // self.expert_split, 1)

    @property
    def assumes_expert_tensor(self) -> bool:
        """Whether `expert_tensor` is not stated and may be `tensor` or less; of a layout whose `data` is known."""
        may_be_divided = self.expert != 1 and self.replicas % self.expert_degree == 0
        return self.expert_tensor is None and self.tensor > 1 and may_be_divided

    @property
    def virtual_degree(self) -> int:
        """Parts of the layers on each GPU of a pipeline; 1 where unknown."""
        return self.virtual_pipeline or 1

    @property
    def is_known(self) -> bool:
        """Whether sharding and all degrees are known."""
        return None not in (self.sharding, self.virtual_pipeline, self.expert)

    @property
    def replicas(self) -> int:
        """GPUs that hold the same parameters, or divide them; of a layout whose `data` is known."""
        return (self.data or 1) * self.context

    @property
    def divided(self) -> int:
        """How many of optimizer states, gradients and parameters, in this order, data parallelism divides."""
        return {"none": 0, "zero1": 1, "zero2": 2}.get(str(self.sharding), 3)

    def shard_size(self, replicas: int, node_gpus: float) -> int:
        """GPUs that hold one copy of what is divided."""
        return min(replicas, int(node_gpus)) if self.sharding == "hsdp" else replicas

    @property
    def shards_parameters(self) -> bool:
        """Whether parameters are divided among replicas."""
        return self.sharding in ("zero3", "fsdp", "hsdp")

    def resolved(self, n_gpus: int) -> Parallel:
        """The layout with `data` filled in.

        Raises
        ------
        InputError
            If the degrees do not multiply to `n_gpus`, or the experts do not divide the replicas.
        """
        data = self.data or n_gpus // self.model
        if data * self.model != n_gpus:
            shown = f"tensor {self.tensor} x pipeline {self.pipeline} x context {self.context}"
            raise InputError(f"{shown} x data {self.data or '?'} is not n_gpus={n_gpus}; change one of them.")
        sharing = data * self.context * self.tensor
        if sharing % (self.expert_degree * (self.expert_tensor or 1)):
            shown = f"expert={self.expert}" + (f" x expert_tensor={self.expert_tensor}" if self.expert_tensor else "")
            raise InputError(f"{shown} does not divide the {sharing} GPUs that share experts.")
        parts = 1 if self.pipeline == 1 else self.virtual_pipeline
        # One replica has nothing to divide.
        sharding = self.sharding or ("none" if data * self.context == 1 else None)
        return replace(self, data=data, virtual_pipeline=parts, sharding=sharding)

    def for_model(self, model: Transformer) -> Parallel:
        """The layout of a model, without experts to share if it has none.

        Raises
        ------
        InputError
            If the model has too few layers, heads or experts.
        """
        if self.pipeline * self.virtual_degree > model.depth:
            raise InputError(f"{model.name} has {model.depth} layers, fewer than the parts of this pipeline.")
        for heads in (stack.heads for stack in model.stacks if stack.heads % self.tensor):
            raise InputError(f"tensor={self.tensor} does not divide the {heads} heads of {model.name}.")
        if (self.expert_tensor or 1) > 1 and not model.routed_experts:
            raise InputError(f"expert_tensor={self.expert_tensor} does not suit {model.name}, which has no experts.")
        if self.expert_degree > 1 and (not model.routed_experts or model.routed_experts % self.expert_degree):
            has = f"{model.routed_experts} experts" if model.routed_experts else "no experts"
            raise InputError(f"expert={self.expert} does not suit {model.name}, which has {has}.")
        alone = not model.routed_experts or (self.data or 1) * self.context * self.tensor == 1
        return replace(self, expert=1, expert_tensor=None) if alone else self

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name in ("data", *_DEGREES) if getattr(self, name) is not None}
        usual = {**dict.fromkeys(given, 1), "expert_tensor": self.tensor}
        degrees = [f"{name}={value}" for name, value in given.items() if value != usual[name]]
        shown = [*degrees, self.sharding or "sharding unknown"]
        return f"Parallel({', '.join(shown)})"


@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters: two thin matrices beside each target, and all other weights frozen.

    Parameters
    ----------
    rank : int, default=16
    targets : str or collection of str, default="all-linear"
        Names of matrices (``q_proj``, ``down_proj`` ...) or one of ``all-linear``, ``attention``, ``qkv``, ``qv``,
        ``mlp``.
    bits : {16, 8, 4}, default=16
        Of a frozen weight; 4 and 8 are quantised (QLoRA).
    quantizer : {"bitsandbytes", "gptq"}, default="bitsandbytes"
        What made the quantised weights: those of GPTQ take longer to use.
    dora : bool, default=False
        Weights decomposed into a direction, which the adapter changes, and a trained magnitude of each output.

    Examples
    --------
    >>> LoRA(8, "qv").n_parameters(Transformer(4096, 32, 32, 14336, 128256, kv_heads=8))
    3407872

    References
    ----------
    Hu et al., LoRA, arXiv:2106.09685; Dettmers et al., QLoRA, arXiv:2305.14314; Liu et al., DoRA, arXiv:2402.09353.
    """

    rank: int = 16
    targets: str | Collection[str] = "all-linear"
    bits: int = 16
    quantizer: str = "bitsandbytes"
    dora: bool = False

    def __post_init__(self) -> None:
        check_number("rank", self.rank, 1, integer=True)
        if isinstance(self.targets, str):
            check_choice("targets", self.targets, [*_GROUPS, *(_GROUPS["attention"] or ()), *(_GROUPS["mlp"] or ())])
        if self.bits not in (16, 8, 4):
            raise InputError(f"bits of frozen weights are 16, 8 or 4; got {self.bits!r}.")
        check_choice("quantizer", self.quantizer, ("bitsandbytes", "gptq"))

    def __repr__(self) -> str:
        quantizer = f", quantizer={self.quantizer!r}" if self.quantizer != "bitsandbytes" else ""
        dora = ", dora=True" if self.dora else ""
        return f"LoRA(rank={self.rank}, targets={self.targets!r}, bits={self.bits}{quantizer}{dora})"

    def covers(self, matrix: Matrix) -> bool:
        """Whether a matrix has an adapter; routers and routed experts have none."""
        if matrix.copies > 1 or matrix.name in ("router", "shared_gate"):
            return False
        names = _GROUPS.get(self.targets, (self.targets,)) if isinstance(self.targets, str) else self.targets
        return names is None or matrix.name in names

    def layer_parameters(self, model: Transformer, *, sparse: bool) -> int:
        """Trained parameters of one layer."""
        found = [matrix for matrix in model.matrices(sparse=sparse) if self.covers(matrix)]
        return sum(self.rank * (matrix.inputs + matrix.outputs) + self.dora * matrix.outputs for matrix in found)

    def input_bytes(self, model: Transformer, *, sparse: bool) -> float:
        """Bytes that the adapters of a layer save for one token, in half precision.

        Their inputs, and for magnitudes the outputs of adapter and weight.
        """
        found = [matrix for matrix in model.matrices(sparse=sparse) if self.covers(matrix)]
        return 2.0 * sum(matrix.inputs + self.dora * 2 * matrix.outputs for matrix in found)

    def covered_weights(self, model: Transformer) -> int:
        """Weights of the matrices that have adapters."""
        layers = [(count, stack.matrices(sparse=sparse)) for stack, sparse, count in model.all_layers]
        return sum(count * matrix.size for count, found in layers for matrix in found if self.covers(matrix))

    def n_parameters(self, model: Transformer) -> int:
        """Trained parameters."""
        return sum(count * self.layer_parameters(stack, sparse=sparse) for stack, sparse, count in model.all_layers)

    def check_targets(self, model: Transformer) -> None:
        """Raise an `InputError` if a name among the targets, or a whole group of them, is of no matrix of a model."""
        known = {matrix.name for stack, sparse, _ in model.all_layers for matrix in stack.matrices(sparse=sparse)}
        unknown = [] if isinstance(self.targets, str) else [name for name in self.targets if name not in known]
        if unknown or not self.n_parameters(model):
            wrong = unknown[0] if unknown else self.targets
            raise InputError(f"targets: {wrong!r} is no matrix of {model.name}; it has {', '.join(sorted(known))}.")
