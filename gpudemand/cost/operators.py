"""Operators and kernels: their vocabulary, operations, and the precision they run in.

Types are ONNX operator names, so that a network has one graph in every framework. Views, slices, reshapes, transposes
that only change strides, expansions, detached copies and shape arithmetic are no operators; a transpose that moves data
is one.

A multiply-add counts as 2. Element-wise operators, normalisations and pools are bound by memory bandwidth: they count
bytes and no operations, as in ``torch.utils.flop_counter``. Biases and masks count nothing.

Products run in half precision, operators that need range or accumulate in single precision, and every other operator in
the widest type among its inputs and parameters; parameters are stored in single precision.

References
----------
PyTorch, "Automatic Mixed Precision package", CUDA op-specific behavior, and ``ATen/autocast_mode.h`` (version 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpudemand._validation import InputError


class UnknownOperatorWarning(UserWarning):
    """A network has operators outside the vocabulary; they count as ``Other``, with no operations."""


class Operator(NamedTuple):
    """One operator call: a row of `OpGraph.nodes`. Amounts are per sample.

    `type`: canonical type, an ONNX operator name (`gpudemand.cost.operators.VOCABULARY`). `kind`: of a convolution,
    one of `CONVOLUTION_KINDS`; otherwise empty. `name`: path of the module or layer that made the call. `operator`:
    what the framework calls it. `output_shape`: with a batch of one. `flops`: operations of the forward pass; a
    multiply-add counts as 2. `parameters`: parameters that this call is the first to use; shared ones count once.
    `weight_bytes`: bytes of all parameters that this call reads, independent of the batch. The rows read from a
    lookup table are in `bytes_read` instead. `bytes_read`, `bytes_written`: bytes of activations. `saved_bytes`:
    bytes of activations saved for the backward pass, each tensor at the first operator that saves it. `fixed_flops`,
    `fixed_bytes_read`, `fixed_bytes_written`, `fixed_saved_bytes`: independent of the batch: of what is computed from
    parameters alone, such as generated weights.
    """

    type: str
    kind: str
    name: str
    operator: str
    output_shape: tuple[int, ...]
    flops: float = 0.0
    parameters: int = 0
    weight_bytes: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    saved_bytes: float = 0.0
    fixed_flops: float = 0.0
    fixed_bytes_read: float = 0.0
    fixed_bytes_written: float = 0.0
    fixed_saved_bytes: float = 0.0


#: Fields that may grow with the batch; what does not is in ``fixed_<field>``.
BATCHED = ("flops", "bytes_read", "bytes_written", "saved_bytes")


OTHER = "Other"

#: Canonical type -> names in PyTorch (ATen, without the trailing ``_`` of in-place variants) ...
_TORCH = {
    "Conv": "conv1d conv2d conv3d convolution _convolution",
    "ConvTranspose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "Gemm": "linear addmm bilinear",
    "MatMul": "matmul mm bmm baddbmm einsum tensordot mv dot vdot vecdot inner addbmm addmv linalg_vecdot chain_matmul "
    "_grouped_mm grouped_mm _scaled_grouped_mm sparse_mm _sparse_mm cdist",
    "Attention": "scaled_dot_product_attention flex_attention",
    "DFT": " ".join(f"fft_{kind}fft{axes}" for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n"))
    + " stft istft",
    "LSTM": "lstm lstm_cell",
    "GRU": "gru gru_cell",
    "RNN": "rnn_tanh rnn_relu rnn_tanh_cell rnn_relu_cell",
    "BatchNormalization": "batch_norm native_batch_norm sync_batch_norm",
    "LayerNormalization": "layer_norm native_layer_norm",
    "GroupNormalization": "group_norm native_group_norm",
    "InstanceNormalization": "instance_norm",
    "RMSNormalization": "rms_norm",
    "LpNormalization": "renorm normalize weight_norm _weight_norm norm_except_dim",
    "LRN": "local_response_norm",
    "Relu": "relu",
    "LeakyRelu": "leaky_relu rrelu",
    "PRelu": "prelu _prelu_kernel",
    "Elu": "elu selu celu",
    "Gelu": "gelu",
    "Swish": "silu",
    "HardSwish": "hardswish",
    "HardSigmoid": "hardsigmoid",
    "Mish": "mish",
    "Softplus": "softplus log_sigmoid logsigmoid",
    "Sigmoid": "sigmoid special_expit",
    "Tanh": "tanh",
    "Clip": "clamp clip clamp_min clamp_max hardtanh relu6 threshold hardshrink softshrink",
    "Softmax": "softmax _softmax _safe_softmax",
    "LogSoftmax": "log_softmax _log_softmax logsumexp",
    "Dropout": "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout bernoulli",
    "MaxPool": "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
    "max_pool3d_with_indices adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
    "AveragePool": "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
    "Add": "add iadd radd cumsum logcumsumexp",
    "Sub": "sub isub rsub subtract",
    "Mul": "mul imul rmul multiply addcmul outer ger addcdiv lerp glu cross kron cumprod",
    "Div": "div idiv truediv itruediv rtruediv rdiv divide true_divide reciprocal floor_divide remainder fmod",
    "Pow": "pow ipow rpow square float_power",
    "Sqrt": "sqrt rsqrt",
    "Exp": "exp expm1 exp2",
    "Log": "log log1p log2 log10",
    "Erf": "erf erfc erfinv",
    "Sin": "sin cos tan atan atan2 asin acos sinh cosh polar",
    "Abs": "abs neg sign absolute negative round floor ceil",
    "Max": "maximum minimum fmax fmin",
    "Where": "where masked_fill tril triu eq ne lt le gt ge greater less greater_equal less_equal equal "
    "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not isnan isinf isfinite invert",
    "Concat": "cat concat concatenate stack hstack vstack dstack column_stack",
    "Pad": "pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d",
    "Tile": "repeat tile repeat_interleave",
    "Transpose": "contiguous reshape flatten clone view unflatten roll flip fliplr flipud rot90 pixel_shuffle "
    "pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im unfold fold fft_fftshift fft_ifftshift "
    "_pack_padded_sequence _pad_packed_sequence",
    "Gather": "embedding embedding_bag gather index_select index getitem take take_along_dim masked_select one_hot",
    "Scatter": "scatter scatter_add scatter_reduce index_add index_put index_copy setitem copy masked_scatter "
    "index_fill select_scatter slice_scatter fill zero",
    "Resize": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d upsample_linear1d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact2d grid_sampler grid_sampler_2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa affine_grid_generator",
    "ReduceMean": "mean var std var_mean std_mean nanmean",
    "ReduceSum": "sum nansum prod norm linalg_norm linalg_vector_norm frobenius_norm cosine_similarity "
    "pairwise_distance dist count_nonzero",
    "ReduceMax": "max amax min amin aminmax argmax argmin median any all",
    "TopK": "topk sort argsort kthvalue msort multinomial",
    "Cast": "to float half double bfloat16 int long bool type type_as",
    "Loss": "cross_entropy_loss nll_loss nll_loss_nd mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
    "binary_cross_entropy binary_cross_entropy_with_logits ctc_loss",
}

#: ... in TensorFlow, by type of graph operation ...
_TENSORFLOW = {
    "Conv": "Conv2D Conv3D DepthwiseConv2dNative",
    "ConvTranspose": "Conv2DBackpropInput Conv3DBackpropInputV2",
    "MatMul": "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum",
    "BatchNormalization": "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3",
    "LRN": "LRN",
    "Relu": "Relu",
    "LeakyRelu": "LeakyRelu",
    "Elu": "Elu Selu",
    "DFT": "FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND RFFT RFFT2D RFFT3D RFFTND IRFFT IRFFT2D IRFFT3D IRFFTND",
    "Softplus": "Softplus Softsign",
    "Sigmoid": "Sigmoid",
    "Tanh": "Tanh",
    "Clip": "Relu6 ClipByValue",
    "Softmax": "Softmax",
    "LogSoftmax": "LogSoftmax",
    "MaxPool": "MaxPool MaxPoolV2 MaxPool3D",
    "AveragePool": "AvgPool AvgPool3D",
    "Add": "Add AddV2 AddN BiasAdd Cumsum",
    "Sub": "Sub",
    "Mul": "Mul MulNoNan Cross",
    "Div": "RealDiv Div DivNoNan FloorDiv FloorMod Reciprocal Inv",
    "Pow": "Pow Square SquaredDifference",
    "Sqrt": "Sqrt Rsqrt",
    "Exp": "Exp Expm1",
    "Log": "Log Log1p",
    "Erf": "Erf Erfc Erfinv",
    "Sin": "Sin Cos Tan Atan Atan2 Sinh Cosh",
    "Abs": "Abs Neg Sign Round Rint Floor Ceil",
    "Max": "Maximum Minimum",
    "Where": "Select SelectV2 Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot "
    "IsNan IsInf IsFinite MatrixBandPart",
    "Concat": "Concat ConcatV2 Pack",
    "Pad": "Pad PadV2 MirrorPad",
    "Tile": "Tile",
    "Transpose": "Transpose ReverseV2 Roll SpaceToDepth DepthToSpace SpaceToBatchND BatchToSpaceND ExtractImagePatches",
    "Gather": "Gather GatherV2 GatherNd ResourceGather OneHot",
    "Scatter": "ScatterNd TensorScatterUpdate TensorScatterAdd UnsortedSegmentSum SegmentSum",
    "Resize": "ResizeNearestNeighbor ResizeBilinear ResizeBicubic ResizeArea ImageProjectiveTransformV3",
    "ReduceMean": "Mean",
    "ReduceSum": "Sum Prod EuclideanNorm",
    "ReduceMax": "Max Min ArgMax ArgMin All Any",
    "TopK": "TopK TopKV2",
    "Cast": "Cast",
    "Loss": "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits L2Loss",
}

#: ... and in Keras, for layers and functions that are one operator but many graph operations.
_KERAS = {
    "Conv": "conv depthwise_conv",
    "ConvTranspose": "conv_transpose",
    "LSTM": "LSTM LSTMCell",
    "GRU": "GRU GRUCell",
    "RNN": "SimpleRNN SimpleRNNCell",
    "BatchNormalization": "BatchNormalization",
    "LayerNormalization": "LayerNormalization",
    "GroupNormalization": "GroupNormalization",
    "RMSNormalization": "RMSNormalization",
    "LpNormalization": "UnitNormalization",
    "Dropout": "dropout Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D AlphaDropout GaussianDropout "
    "GaussianNoise",
    "Gather": "Embedding",
    "PRelu": "PReLU",
    "Gelu": "gelu",
    "Swish": "silu swish",
    "HardSwish": "hard_silu hard_swish",
    "HardSigmoid": "hard_sigmoid",
    "Mish": "mish",
    "Elu": "celu",
    "Softplus": "log_sigmoid soft_sign",
    "Clip": "hard_tanh hard_shrink soft_shrink threshold",
    "Resize": "UpSampling1D UpSampling2D UpSampling3D",
}

#: TensorFlow operations that only rename, slice or describe data; they are no operators.
_VIEWS = """
    Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient StridedSlice Slice Split SplitV Unpack
    Shape ShapeN Size Rank BroadcastTo EnsureShape CheckNumerics ReadVariableOp Bitcast Snapshot NoOp Assert ZerosLike
    OnesLike Fill Range BroadcastArgs BroadcastGradientArgs Placeholder Const VariableShape AssignVariableOp
    AssignAddVariableOp AssignSubVariableOp
"""
TENSORFLOW_VIEWS = frozenset(_VIEWS.split())


def _inverted(names: dict[str, str]) -> dict[str, str]:
    return {name: canonical for canonical, text in names.items() for name in text.split()}


TORCH_TYPES = _inverted(_TORCH)
TENSORFLOW_TYPES = _inverted(_TENSORFLOW)
KERAS_TYPES = _inverted(_KERAS)
_GLOBAL = ("GlobalAveragePool", "GlobalMaxPool")

#: Every canonical type, in the order in which matrices and features list them.
VOCABULARY: tuple[str, ...] = (*_TORCH, *_GLOBAL, OTHER)


def torch_type(name: str) -> str:
    """Return the canonical type of a PyTorch operator.

    `name`: ATen or Python name: ``conv2d``, ``relu_``, ``__iadd__``.

    >>> torch_type("relu_"), torch_type("__iadd__"), torch_type("my_op")
    ('Relu', 'Add', 'Other')
    """
    plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
    return TORCH_TYPES.get(plain, OTHER)


def tensorflow_type(name: str) -> str:
    """Return the canonical type of a TensorFlow graph operation.

    >>> tensorflow_type("DepthwiseConv2dNative"), tensorflow_type("AddV2"), tensorflow_type("While")
    ('Conv', 'Add', 'Other')
    """
    return TENSORFLOW_TYPES.get(name, OTHER)


def convolution_kind(kernel: Sequence[int], groups: int, channels: int) -> str:
    """Class of a convolution by kernel and groups; the classes run at different speeds.

    `kernel`: size along the spatial axes. `groups`, `channels`: number of groups and of input channels. Returns
    ``3x3``: at most 3 along every axis.

    >>> convolution_kind((3, 3), 1, 64), convolution_kind((7, 7), 96, 96)
    ('3x3', 'depthwise')
    """
    if groups > 1:
        return "depthwise" if groups == channels else "grouped"
    extent = max(kernel, default=1)
    return "1x1" if extent == 1 else "3x3" if extent <= 3 else "large"


CONVOLUTION_KINDS = ("1x1", "3x3", "large", "grouped", "depthwise")


class Saved(NamedTuple):
    """What the gradient of an operator needs from the forward pass."""

    inputs: bool = False
    output: bool = False
    #: Further bytes per output element, such as a dropout mask or the index of a maximum.
    extra: float = 0.0


_SAVED = {
    Saved(): "Add Sub Concat Pad Tile Transpose Cast Resize AveragePool GlobalAveragePool ReduceMean ReduceSum Scatter "
    "DFT",
    Saved(inputs=True): "Conv ConvTranspose Gemm MatMul Mul Div Pow Log Erf Sin Abs Max Gather BatchNormalization "
    "LayerNormalization GroupNormalization InstanceNormalization RMSNormalization LpNormalization LRN Softplus "
    "LeakyRelu PRelu Gelu Swish HardSwish HardSigmoid Mish Clip",
    Saved(output=True): "Relu Elu Sigmoid Tanh Softmax LogSoftmax Sqrt Exp",
    Saved(inputs=True, output=True): "Attention MaxPool GlobalMaxPool ReduceMax Other",
    Saved(inputs=True, extra=4.0): "Loss",
    Saved(extra=1.0): "Dropout Where",
    Saved(extra=4.0): "TopK",
}
#: What each operator saves for the backward pass. A tensor saved by two operators counts once; weights never count.
#: The statistics of normalisations (one number a channel) are left out.
SAVES = {name: saved for saved, names in _SAVED.items() for name in names.split()}

#: Numbers that a recurrent cell saves per time step and hidden unit (gates and states, its output among them), beside
#: its input.
RECURRENT_STATE = {"LSTM": 7.0, "GRU": 7.0, "RNN": 1.0}


def check_vocabulary(types: Sequence[str]) -> tuple[str, ...]:
    """Return `types` as a tuple; raise `InputError` for one that is no canonical operator type."""
    unknown = [name for name in types if name not in VOCABULARY]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no operator type; gpudemand.cost.operators.VOCABULARY lists them.")
    return tuple(types)


#: Kinds that do most of their work in matrix units, ...
MATRIX_KINDS = ("gemm", "matmul", "attention", "conv_1x1", "conv_3x3", "conv_large", "conv_transpose", "conv_grouped")
#: ... in the other arithmetic units, ...
VECTOR_KINDS = ("conv_depthwise", "fft")
#: ... and kinds that only move data.
MEMORY_KINDS = (
    *("batch_norm", "layer_norm", "group_norm", "softmax", "pointwise", "reduce", "pool", "move", "gather", "cast"),
    *("random", "sort"),
)
KINDS = (*MATRIX_KINDS, *VECTOR_KINDS, *MEMORY_KINDS)

#: Kind -> operators of ATen; whatever is not listed is ``pointwise``, as most of ATen is.
_ATEN = {
    "gemm": "mm addmm addmv mv linear",
    "matmul": "bmm baddbmm _grouped_mm",
    "attention": "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward flex_attention "
    "flex_attention_backward",
    "fft": "_fft_r2c _fft_c2c _fft_c2r",
    "batch_norm": "native_batch_norm native_batch_norm_backward _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _batch_norm_with_update batch_norm_backward",
    "layer_norm": "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward",
    "group_norm": "native_group_norm native_group_norm_backward",
    "softmax": "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _safe_softmax",
    "reduce": "sum mean amax amin max min var std var_mean std_mean argmax argmin prod any all norm linalg_vector_norm "
    "cumsum cumprod logsumexp _weight_norm_interface _weight_norm_interface_backward count_nonzero",
    "move": "clone cat copy_ stack constant_pad_nd roll flip select_backward slice_backward slice_scatter "
    "select_scatter as_strided_scatter repeat im2col col2im new_zeros zeros_like zeros new_full full full_like "
    "ones_like ones fill_ zero_ native_channel_shuffle pixel_shuffle pixel_unshuffle diagonal_backward "
    "unfold_backward reflection_pad2d reflection_pad2d_backward replication_pad2d replication_pad2d_backward _to_copy",
    "gather": "index index_select index_put index_put_ _unsafe_index _unsafe_index_put gather scatter scatter_ "
    "scatter_add scatter_add_ scatter_reduce index_add index_add_ embedding embedding_dense_backward _embedding_bag "
    "_embedding_bag_backward _embedding_bag_dense_backward masked_scatter take nonzero unique_consecutive",
    "random": "bernoulli_ bernoulli native_dropout native_dropout_backward rand randn rand_like randn_like uniform_ "
    "normal_ randint multinomial",
    "sort": "topk sort argsort kthvalue median",
}
ATEN_KINDS = {name: kind for kind, names in _ATEN.items() for name in names.split()}


class Kernel(NamedTuple):
    """Kernel launches of one step that do the same work: a row of `OpGraph.kernels`.

    `kind`: one of `KINDS`. `backward`: whether it belongs to the backward pass. `is_autocast`: a cast that happens
    only under automatic mixed precision. `channels`, `inner`: of a product with parameters the two extents of these,
    of other products the two smaller ones, of convolutions the output channels and the input channels of a group; 0
    for other kinds. `weights`, `width`: weights of a convolution, and the longest side of its filters; 0 where
    unknown. `is_direct`: a convolution that libraries have no fast algorithm for: dilated, or over other than two
    spatial axes. `flops`, `bytes`, `half_bytes`: per sample: operations, and bytes read and written in single
    precision and under autocast. `fixed_bytes`, `fixed_half_bytes`, `fixed_flops`: independent of the batch: of
    parameters, their gradients, and what is computed from them alone. `calls`: number of such launches.
    """

    kind: str
    backward: bool = False
    is_autocast: bool = False
    channels: int = 0
    inner: int = 0
    weights: int = 0
    width: int = 0
    is_direct: bool = False
    flops: float = 0.0
    bytes: float = 0.0
    half_bytes: float = 0.0
    fixed_bytes: float = 0.0
    fixed_half_bytes: float = 0.0
    fixed_flops: float = 0.0
    calls: int = 1


def weighted_flops(positions: float, weights: float) -> float:
    """Operations of a layer that uses each of its weights once at every position.

    `positions`: convolution: batch x output positions (input positions if transposed); dense layer: batch x tokens;
    recurrent layer: batch x time steps. `weights`: elements of the weights.

    A 3x3 convolution from 3 to 64 channels on 32x32 positions:

    >>> weighted_flops(32 * 32, 64 * 3 * 3 * 3)
    3538944.0
    """
    return 2.0 * positions * weights


def matmul_flops(outputs: float, inner: float) -> float:
    """Operations of a matrix product of `outputs` elements, each a sum over `inner` products.

    >>> matmul_flops(10 * 10, 64)
    12800.0
    """
    return 2.0 * outputs * inner


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> float:
    """Operations of scaled dot-product attention: two matrix products, without savings by a mask.

    `query`, `key`, `value`: shapes ``(..., heads, tokens, size)``.

    >>> attention_flops((1, 8, 128, 64), (1, 8, 128, 64), (1, 8, 128, 64))
    33554432.0
    """
    return 2.0 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def fourier_flops(elements: float, length: float, *, real: bool) -> float:
    """Operations of fast Fourier transforms along axes of `length` elements together: ``5 n log2(n)``, half if real.

    `elements`: elements of the signal, in all transforms. `length`: elements of one transform, the product of its
    axes. `real`: whether the signal is real.

    References
    ----------
    Van Loan, "Computational Frameworks for the Fast Fourier Transform", SIAM 1992.

    Examples
    --------
    >>> fourier_flops(3 * 1024, 1024, real=False)
    153600.0
    """
    return (2.5 if real else 5.0) * elements * math.log2(max(length, 1.0))


def einsum_flops(equation: str, shapes: Sequence[Sequence[int]]) -> float:
    """Operations of an Einstein sum contracted from left to right; zero where no product is summed.

    `equation`: as for ``numpy.einsum``; an ellipsis stands for axes that all operands share. `shapes`: one an
    operand.

    >>> einsum_flops("bqhd,bkhd->bhqk", [(1, 10, 2, 8), (1, 10, 2, 8)])
    3200.0
    """
    terms, _, result = equation.replace(" ", "").partition("->")
    labels = [_axes(term, len(shape)) for term, shape in zip(terms.split(","), shapes, strict=True)]
    output = set(_axes(result, max(map(len, shapes)))) if result else _implicit_output(labels)
    pairs = zip(labels, shapes, strict=True)
    size = {name: extent for term, shape in pairs for name, extent in zip(term, shape, strict=True)}
    contracted, flops = set(labels[0]), 0.0
    for position, term in enumerate(labels[1:], start=2):
        later = output.union(*labels[position:])
        joint = contracted | set(term)
        if joint - later:
            flops += 2.0 * math.prod(size.get(name, 1) for name in joint)
        contracted = joint & later
    return flops


def _axes(term: str, n_axes: int) -> list[str]:
    """Name each axis of a term; the axes under an ellipsis are numbered from the right."""
    if "..." not in term:
        return list(term)
    before, after = term.split("...")
    hidden = n_axes - len(before) - len(after)
    return [*before, *(str(i) for i in range(hidden, 0, -1)), *after]


def _implicit_output(labels: list[list[str]]) -> set[str]:
    flat = [name for term in labels for name in term]
    return {name for name in flat if flat.count(name) == 1 or name.isdigit()}


#: Width of half precision, as a share of single precision.
HALF_WIDTH = 0.5

#: Canonical types that autocast runs in half precision ...
HALF_TYPES = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN", "PRelu"])
#: ... and those that it runs in single precision,
SINGLE_TYPES = frozenset(
    [
        *("LayerNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization", "LRN"),
        *("Softmax", "LogSoftmax", "Softplus", "Loss", "Pow", "Exp", "Log", "ReduceSum", "Resize"),
    ]
)
#: together with these operators; others of their types take the widest type.
_SINGLE_OPERATORS = frozenset(["rsqrt", "reciprocal", "cumsum", "erfinv", "tan", "acos", "asin", "cosh", "sinh"])
#: Operators that take the widest type although others of their type run in single precision.
_WIDEST_OPERATORS = frozenset(["exp2", "log_sigmoid", "logsigmoid"])
#: Canonical types whose single-precision parameters leave the output in the type of the input.
_MIXED_INPUT_TYPES = frozenset(["BatchNormalization", "InstanceNormalization"])


def autocast_width(type_: str, operator: str, inputs: Sequence[float], has_parameters: bool) -> float:
    """Width of the output of an operator under autocast, as a share of single precision.

    `type_`: canonical type. `operator`: what the framework calls it; ``rsqrt`` and ``sqrt`` have one type and
    different precisions. `inputs`: widths of the operators that it reads; an input of the network counts as single
    precision. `has_parameters`: whether it reads parameters.

    >>> autocast_width("Gemm", "linear", [1.0], True), autocast_width("Relu", "relu", [0.5], False)
    (0.5, 0.5)
    >>> autocast_width("Add", "add", [0.5], True), autocast_width("BatchNormalization", "batch_norm", [0.5], True)
    (1.0, 0.5)
    """
    if type_ in HALF_TYPES:
        return HALF_WIDTH
    if runs_in_single(type_, operator.lower()) or (has_parameters and type_ not in _MIXED_INPUT_TYPES):
        return 1.0
    return max(inputs, default=1.0)


def runs_in_half(type_: str) -> bool:
    """Whether autocast runs a canonical type in half precision."""
    return type_ in HALF_TYPES


def runs_in_single(type_: str, operator: str) -> bool:
    """Whether autocast runs an operator of a canonical type in single precision."""
    return operator in _SINGLE_OPERATORS or (type_ in SINGLE_TYPES and operator not in _WIDEST_OPERATORS)
