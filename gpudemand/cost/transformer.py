"""`Transformer`: the sizes of a transformer, its weight matrices and parameters."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gpudemand._validation import InputError, check_number, shorten


class Matrix(NamedTuple):
    """A weight matrix of a layer: its name, its sides, how many there are, and how many a token passes."""

    name: str
    inputs: int
    outputs: int
    copies: int = 1
    active: float = 1

    @property
    def size(self) -> int:
        """Weights in one copy."""
        return self.inputs * self.outputs


def mixer_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of what mixes the tokens of a layer: attention, also to an encoder, or what the model has instead."""
    if model.mixer:
        return list(model.mixer)
    return attention_matrices(model) + (cross_matrices(model) if model.source_share else []) if model.heads else []


def attention_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of attention among the tokens."""
    h, out = model.hidden, Matrix("o_proj", model.value_width, model.hidden)
    if model.kv_rank:
        plain = [Matrix("q_proj", h, model.query_width)]
        low = [Matrix("q_a_proj", h, model.q_rank), Matrix("q_b_proj", model.q_rank, model.query_width)]
        nope = model.head_dim - model.rope_dim
        keys = [
            Matrix("kv_a_proj_with_mqa", h, model.kv_rank + model.rope_dim),
            Matrix("kv_b_proj", model.kv_rank, model.heads * nope + model.value_width),
        ]
        return [*(low if model.q_rank else plain), *keys, out]
    kv = model.kv_width
    if model.fused:
        return [Matrix("qkv_proj", h, model.query_width + 2 * kv), out]
    queries = model.query_width * (1 + model.attention_gate)
    return [Matrix("q_proj", h, queries), Matrix("k_proj", h, kv), Matrix("v_proj", h, kv), out]


def cross_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of attention to an encoder, whose tokens pass those of keys and values."""
    keys, source = (model.source_width or model.hidden, model.kv_width), model.source_share
    own = (model.hidden, model.query_width)
    sides = {"q_proj": (own, 1.0), "k_proj": (keys, source), "v_proj": (keys, source), "o_proj": (own[::-1], 1.0)}
    return [Matrix(name, *size, active=share) for name, (size, share) in sides.items()]


def feed_forward_matrices(model: Transformer, *, sparse: bool) -> list[Matrix]:
    """Matrices of the feed-forward part of a dense or of a sparse layer."""
    if not sparse:
        return _mlp(model, model.hidden, model.ffn) if model.ffn else []
    hidden, latent = model.hidden, model.expert_hidden
    routed = _mlp(model, model.expert_width, model.expert_ffn, model.experts, model.active_experts)
    sides = [Matrix("latent_in_proj", hidden, latent), Matrix("latent_out_proj", latent, hidden)] if latent else []
    shared = _mlp(model, hidden, model.shared_ffn) if model.shared_ffn else []
    gate = [Matrix("shared_gate", hidden, 1)] if model.shared_gate else []
    return [Matrix("router", hidden, model.experts), *sides, *routed, *shared, *gate]


def _mlp(model: Transformer, hidden: int, width: int, copies: int = 1, active: int = 1) -> list[Matrix]:
    up = [("gate_up_proj", 2)] if model.gated and model.fused else [("gate_proj", 1)] * model.gated + [("up_proj", 1)]
    first = [Matrix(name, hidden, times * width, copies, active) for name, times in up]
    return [*first, Matrix("down_proj", width, hidden, copies, active)]


def biased(model: Transformer, mixer: list[Matrix], others: list[Matrix]) -> list[Matrix]:
    """Those of the matrices of a layer that have biases."""
    every = [*mixer, *others]
    named = {
        "none": [],
        "qkv": mixer[:-1],
        "attention": mixer,
        "mlp": others,
        "output": [matrix for matrix in every if matrix.name not in ("q_proj", "k_proj", "v_proj", "qkv_proj")],
        "keyless": [matrix for matrix in every if matrix.name != "k_proj"],
        "all": every,
    }
    return named[model.biases]


@dataclass(frozen=True)
class Transformer:
    """A stack of equal layers between an embedding and a head, and the stacks that belong to it.

    Parameters
    ----------
    hidden, layers, heads, ffn, vocab : int
        Width, depth, query heads, width of the feed-forward layer, and rows of the embedding.
    kv_heads, head_dim : int, optional
        Key and value heads, and width of a head; by default `heads` and ``hidden / heads``.
    name : str, default="transformer"
    gated : bool, default=True
        Three feed-forward matrices (SwiGLU, GeGLU) instead of two.
    tied : bool, default=False
        The head is the transposed embedding.
    causal : bool, default=True
        A token attends to those before it only.
    biases : {"none", "qkv", "attention", "mlp", "output", "keyless", "all"}, default="none"
        Matrices with biases; of ``output`` all but those of queries, keys and values, of ``keyless`` all but keys.
    norm_bias : bool, default=False
        Layer normalisation with biases instead of RMS normalisation.
    norms : int, default=2
        Normalisations of width `hidden` in a layer.
    qk_norm : {0, 1, 2}, default=0
        Normalisation of queries and keys: none, by head, or over all heads.
    outer_norms : int, default=1
        Normalisations outside the layers.
    positions : int, default=0
        Learned vectors of positions and token types.
    reserved : int, default=0
        Those of `positions` that are no token's place: token types, and places that padding has.
    embed_width : int, default=0
        Width of the embedding and of the head, by default `hidden`.
    attention_gate : bool, default=False
        A gate as wide as the queries, from their matrix.
    fused : bool, default=False
        Queries, keys and values (and gates) come from one matrix, as adapters see it.
    head_bias, head_layer : bool, default=False
        A bias of the head; a square layer before it (BERT).
    experts, active_experts, expert_ffn, shared_ffn, expert_hidden, dense_layers : int, default=0
        Mixture of experts: how many, how many a token passes, their width, that of those that every token passes,
        the width of a token in routed ones if it is not `hidden`, and the first layers that have a dense feed-forward
        layer instead.
    expert_groups, active_groups : int, default=0
        Groups that the routed experts are divided into, and how many of them a token's experts may be in; 0 for any.
    shared_gate, router_bias, sinks : bool, default=False
        A gate of the shared expert; biases of router and experts; a learned attention sink a head.
    q_rank, kv_rank, rope_dim, value_dim : int, default=0
        Latent attention: ranks of queries and of keys and values, and widths of the rotary part and of a value.
    window : int, default=0
        Positions that sliding-window layers attend to, of which half are ahead if not `causal`; 0 for all.
    window_share : float, default=1
        Share of the layers that have the window.
    chunked : bool, default=False
        Windows do not slide: a token attends to those of its chunk, of the size of `window`.
    parts : tuple of Transformer, default=()
        Further stacks: the encoder of a decoder, the tower of its images, or layers of another kind among these.
    tokens : int, default=0
        Tokens of a sample in this stack where the model fixes them, such as patches of an image.
    source_share : float, default=0
        Tokens of the encoder, which the layers attend to as well, for each token here; 0 without an encoder.
    source_width : int, default=0
        Width of the encoder, by default `hidden`.
    mixer : tuple of Matrix, default=()
        Matrices that mix tokens instead of those of attention (state-space layers); `window` is what they cost.
    extra, outer : int, default=0
        Other parameters of a layer (kernels of convolutions, scales), and outside the layers.

    Examples
    --------
    >>> llama = Transformer(4096, 32, 32, 14336, 128256, kv_heads=8)
    >>> llama.n_parameters
    8030261248
    """

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab: int
    kv_heads: int = 0
    head_dim: int = 0
    name: str = "transformer"
    gated: bool = True
    tied: bool = False
    causal: bool = True
    biases: str = "none"
    norm_bias: bool = False
    norms: int = 2
    qk_norm: int = 0
    outer_norms: int = 1
    positions: int = 0
    reserved: int = 0
    embed_width: int = 0
    attention_gate: bool = False
    fused: bool = False
    head_bias: bool = False
    head_layer: bool = False
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    expert_hidden: int = 0
    dense_layers: int = 0
    expert_groups: int = 0
    active_groups: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    sinks: bool = False
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    window: int = 0
    window_share: float = 1.0
    chunked: bool = False
    parts: tuple[Transformer, ...] = ()
    tokens: int = 0
    source_share: float = 0.0
    source_width: int = 0
    mixer: tuple[Matrix, ...] = ()
    extra: int = 0
    outer: int = 0

    def __post_init__(self) -> None:
        for name, least in (("hidden", 1), ("layers", 1), ("heads", 0), ("vocab", 0)):
            check_number(name, getattr(self, name), least, integer=True)
        if not (self.heads or self.mixer or self.ffn or self.expert_ffn):
            raise InputError("a layer needs heads, a mixer or ffn, the width of its feed-forward layer.")
        if self.heads and not self.head_dim and self.hidden % self.heads:
            raise InputError(f"hidden size {self.hidden} does not divide into {self.heads} heads; give head_dim.")
        object.__setattr__(self, "head_dim", self.head_dim or self.hidden // max(self.heads, 1))
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        self._check_experts()

    def _check_experts(self) -> None:
        if self.active_experts > self.experts:
            raise InputError(f"{self.active_experts} active experts are more than the {self.experts} there are.")
        if self.experts and not self.active_experts:
            raise InputError("a mixture of experts needs the experts a token passes; give num_experts_per_tok.")
        groups = int(check_number("expert_groups", self.expert_groups, 0, integer=True))
        active = int(check_number("active_groups", self.active_groups, 0, integer=True))
        if active > groups > 0:
            raise InputError(f"{active} active groups are more than the {groups} there are.")
        if groups and self.experts % groups:
            raise InputError(f"{self.experts} experts do not divide into {groups} groups; give a number that does.")
        if active and self.active_experts * groups > active * self.experts:
            raise InputError(f"{active} of {groups} groups hold fewer than {self.active_experts} active experts.")
        if self.dense_layers > self.layers:
            raise InputError(f"{self.dense_layers} dense layers are more than the {self.layers} layers there are.")

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of what attention gives out, all heads together."""
        return self.heads * (self.value_dim or self.head_dim)

    @property
    def kv_width(self) -> int:
        """Width of the keys of all heads, and of the values."""
        return (self.heads if self.kv_rank else self.kv_heads) * self.head_dim

    def matrices(self, *, sparse: bool) -> list[Matrix]:
        """All matrices of a layer."""
        return self._matrices[sparse]

    @functools.cached_property
    def _matrices(self) -> tuple[list[Matrix], list[Matrix]]:
        mixer = mixer_matrices(self)
        return mixer + feed_forward_matrices(self, sparse=False), mixer + feed_forward_matrices(self, sparse=True)

    @functools.cached_property
    def _parameters(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of a dense and of a sparse layer, parameters without routed experts, and of these."""
        return tuple((self._shared(sparse), self._routed(sparse)) for sparse in (False, True))  # type: ignore[return-value]

    @property
    def expert_width(self) -> int:
        """Width of a token that is sent to routed experts."""
        return self.expert_hidden or self.hidden

    @property
    def sparse_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def layer_kinds(self) -> tuple[tuple[bool, int], ...]:
        """Pairs of whether a layer has experts, and how many such layers there are."""
        kinds = ((False, self.layers - self.sparse_layers), (True, self.sparse_layers))
        return tuple((sparse, count) for sparse, count in kinds if count)

    def layer_parameters(self, *, sparse: bool) -> int:
        """Parameters of one layer."""
        return self.expert_parameters(sparse=sparse) + self.shared_parameters(sparse=sparse)

    def expert_parameters(self, *, sparse: bool) -> int:
        """Parameters of the routed experts of one layer, which expert parallelism divides."""
        return self._parameters[sparse][1]

    def shared_parameters(self, *, sparse: bool) -> int:
        """Parameters of one layer without its routed experts."""
        return self._parameters[sparse][0]

    def _routed(self, sparse: bool) -> int:
        found = [matrix for matrix in self.matrices(sparse=sparse) if matrix.copies > 1]
        weights = sum(matrix.size * matrix.copies for matrix in found)
        return weights + sum(matrix.outputs * matrix.copies for matrix in found) * self.router_bias

    def _shared(self, sparse: bool) -> int:
        mixer = mixer_matrices(self)
        others = [matrix for matrix in feed_forward_matrices(self, sparse=sparse) if matrix.copies == 1]
        weights = sum(matrix.size for matrix in [*mixer, *others])
        biases = sum(matrix.outputs for matrix in biased(self, mixer, others))
        return weights + biases + self._small(sparse=sparse) + self.extra

    def _small(self, *, sparse: bool) -> int:
        """Normalisations, sinks and the bias of a router."""
        widths = {0: 0, 1: 2 * self.head_dim, 2: self.query_width + self.kv_width}[self.qk_norm]
        latent = self.q_rank + self.kv_rank if self.kv_rank else 0
        norms = self.norms * self.hidden * (1 + self.norm_bias) + widths + latent
        return norms + self.heads * self.sinks + self.experts * (sparse and self.router_bias)

    @property
    def longest(self) -> int:
        """Tokens of the longest sample that learned positions allow; 0 for any."""
        return max(self.positions - self.reserved, 0)

    @property
    def embedding_parameters(self) -> int:
        """Parameters before the first layer."""
        return (self.vocab + self.positions) * (self.embed_width or self.hidden)

    @property
    def head_parameters(self) -> int:
        """Parameters after the last layer that are not the embedding's."""
        norms = self.outer_norms * self.hidden * (1 + self.norm_bias) + self.outer
        square = self.head_layer * (self.hidden + 3) * self.hidden
        head = 0 if self.tied else self.vocab * (self.embed_width or self.hidden)
        return norms + square + self.vocab * self.head_bias + head

    @functools.cached_property
    def n_parameters(self) -> int:
        """All parameters, each once."""
        layers = sum(count * self.layer_parameters(sparse=sparse) for sparse, count in self.layer_kinds)
        own = self.embedding_parameters + layers + self.head_parameters
        return own + sum(part.n_parameters for part in self.parts)

    @property
    def n_active_parameters(self) -> int:
        """Parameters that a token passes."""
        unused = self.expert_parameters(sparse=True) * (1.0 - self.active_experts / self.experts) if self.experts else 0
        apart = sum(part.n_parameters - part.n_active_parameters for part in self.parts)
        return self.n_parameters - round(unused * self.sparse_layers) - apart

    @functools.cached_property
    def stacks(self) -> tuple[Transformer, ...]:
        """The stack without its parts, and these."""
        parts = tuple(stack for part in self.parts for stack in part.stacks)
        return (replace(self, parts=()), *parts) if parts else (self,)

    @property
    def all_layers(self) -> list[tuple[Transformer, bool, int]]:
        """`layer_kinds` of all stacks, each with its stack."""
        return [(stack, sparse, count) for stack in self.stacks for sparse, count in stack.layer_kinds]

    @property
    def routed_experts(self) -> int:
        """Experts of a layer that has them, in any stack."""
        return max(stack.experts for stack in self.stacks)

    @property
    def routed_parameters(self) -> int:
        """Parameters of the routed experts of all stacks."""
        return sum(count * stack.expert_parameters(sparse=sparse) for stack, sparse, count in self.all_layers)

    @property
    def depth(self) -> int:
        """Layers of all stacks."""
        return sum(stack.layers for stack in self.stacks)

    def matrix_flops(self, *, sparse: bool) -> float:
        """Operations of the matrix products of a layer, for one token, forward."""
        return 2.0 * sum(matrix.size * matrix.active for matrix in self.matrices(sparse=sparse))

    def attention_flops(self, seq_len: int) -> float:
        """Operations of scores and weighted values of a layer, for one token, forward, means over the layers."""
        per_position = 2.0 * (self.query_width + self.value_width)
        return per_position * self.attended(seq_len)

    def attended(self, seq_len: int) -> float:
        """Positions that a token attends to, those of an encoder too, mean over tokens and layers."""
        own = self._mean_attended(seq_len, seq_len)
        if self.window:
            inside = self.window if self.mixer else self._mean_attended(seq_len, self.window)
            own = self.window_share * inside + (1.0 - self.window_share) * own
        return own + self.source_share * seq_len

    def _mean_attended(self, seq_len: int, window: int) -> float:
        """Positions that a token attends to in a layer with a window; those near an end have fewer."""
        sides = 1.0 if self.causal else 2.0
        if self.chunked:
            chunks, rest = divmod(seq_len, window)
            return sides / 2.0 * (chunks * window**2 + rest**2) / seq_len
        reach = min(window / sides, seq_len)
        return sides * (reach - reach**2 / (2.0 * seq_len))

    @property
    def head_flops(self) -> float:
        """Operations of the head for one token, forward."""
        return 2.0 * self.vocab * (self.embed_width or self.hidden)

    def layer_flops(self, seq_len: int) -> float:
        """Operations of all layers for one token, forward."""
        products = sum(count * self.matrix_flops(sparse=sparse) for sparse, count in self.layer_kinds)
        return products + self.layers * self.attention_flops(seq_len)

    def model_flops(self, seq_len: int) -> float:
        """Operations of a training step for one token, three times those of a forward pass, nothing recomputed."""
        return 3.0 * (self.layer_flops(seq_len) + self.head_flops)


Config = Mapping[str, Any]
#: Size -> its keys in configurations, the first found counts.
KEYS = {
    name: tuple(keys.split())
    for name, keys in {
        "hidden": "hidden_size n_embd d_model dim hidden",
        "layers": "num_hidden_layers n_layer n_layers num_layers decoder_layers layers",
        "heads": "num_attention_heads n_head n_heads num_heads decoder_attention_heads attention_heads heads",
        "kv_heads": "num_key_value_heads num_kv_heads n_kv_heads multi_query_group_num kv_heads",
        "head_dim": "head_dim kv_channels d_kv",
        "ffn": "intermediate_size n_inner ffn_dim ffn_hidden_size d_ff decoder_ffn_dim hidden_dim ffn",
        "vocab": "vocab_size padded_vocab_size vocab",
        "experts": "num_local_experts num_experts n_routed_experts moe_num_experts experts",
        "active_experts": "num_experts_per_tok moe_k moe_top_k active_experts",
        "expert_ffn": "moe_intermediate_size expert_ffn",
        "shared_ffn": "shared_expert_intermediate_size",
        "expert_hidden": "moe_latent_size",
        "dense_layers": "first_k_dense_replace",
        "expert_groups": "n_group",
        "active_groups": "topk_group",
        "q_rank": "q_lora_rank",
        "kv_rank": "kv_lora_rank",
        "rope_dim": "qk_rope_head_dim",
        "value_dim": "v_head_dim",
        "window": "sliding_window",
        "embed_width": "embedding_size word_embed_proj_dim",
    }.items()
}
#: Width of the feed-forward layer as a multiple of the hidden width, where a configuration gives none.
_FFN = 4
#: Switch of a configuration -> matrices with biases.
_BIASES = {"attention_bias": "attention", "use_qkv_bias": "qkv", "qkv_bias": "qkv", "use_bias": "all"}


def size_of(config: Config, *keys: str) -> int | None:
    """The first size of some keys; those that are there without a value count as missing."""
    for key in keys:
        if (value := config.get(key)) is not None:
            return int(check_number(key, value, 0, _LARGEST_SIZE, integer=True))
    return None


#: No size of a model is near; products of such sizes are still numbers.
_LARGEST_SIZE = 10**8


def count_of(config: Config, *keys: str, usual: int = 0) -> int:
    """As `size_of`, and what is usual where a configuration gives none, or zero."""
    return size_of(config, *keys) or usual


def sizes_of(config: Config, known: Config) -> dict[str, Any]:
    """Sizes that a configuration gives, over those that are `known` of its family."""
    given = {name: value for name, keys in KEYS.items() if (value := size_of(config, *keys)) is not None}
    if "layers" not in given and config.get("layers_block_type"):
        given["layers"] = len(config["layers_block_type"])
    sizes = {**known, **given}
    # State-space families have no heads.
    empty = [name for name in ("hidden", "layers", "heads") if sizes.get(name) == 0 and known.get(name) != 0]
    empty += [name for name in ("kv_heads", "head_dim") if given.get(name) == 0 and sizes.get("heads")]
    if empty:
        raise InputError(f"the configuration has {KEYS[empty[0]][0]} = 0; give what config.json of the model has.")
    missing = [f"{name} ({', '.join(KEYS[name][:2])})" for name in ("hidden", "layers", "heads") if name not in sizes]
    if missing:
        raise InputError(f"the configuration lacks {', '.join(missing)}; give what config.json of the model has.")
    if "vocab" not in sizes:
        raise InputError("the configuration lacks vocab_size, the rows of the embedding.")
    sizes.setdefault("ffn", _FFN * sizes["hidden"])
    switches = {
        "tied": "tie_word_embeddings",
        "shared_gate": "shared_gate",
        "gated": "gated",
        "head_bias": "lm_head_bias",
    }
    return {**sizes, **{name: bool(config[key]) for name, key in switches.items() if config.get(key) is not None}}


def plain(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Decoders whose configuration names their biases."""
    found: dict[str, Any] = {}
    named = [name for key, name in _BIASES.items() if config.get(key)]
    if config.get("mlp_bias"):
        named = ["all" if named else "mlp"]
    if named and "biases" not in sizes:
        found["biases"] = named[0]
    if not config.get("use_sliding_window", True):
        found["window"] = 0
    if sizes.get("experts") and not sizes.get("expert_ffn"):
        found["expert_ffn"] = sizes["ffn"]
    if sizes.get("experts") and "dense_layers" not in sizes:
        found["dense_layers"] = _dense_layers(config, sizes["layers"])
    kinds = list(config.get("layer_types") or ())
    local = sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    return {**found, "window_share": local / len(kinds)} if kinds else found


def _dense_layers(config: Config, layers: int) -> int:
    """Layers without experts, of configurations that name them or give a step."""
    step, dense = size_of(config, "decoder_sparse_step") or 1, config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(isinstance(place, int) for place in dense):
        raise InputError(f"mlp_only_layers must be a list of numbers of layers; got {shorten(str(dense))!r}.")
    named = set(dense)
    return sum(place in named or (place + 1) % step > 0 for place in range(layers))


def labels_of(config: Config) -> int:
    """Classes of a classifier; two if a configuration names none, as in transformers."""
    return size_of(config, "num_labels") or len(config.get("id2label") or ()) or 2
