"""Canonical operator types, the operators of each framework that map to them, and what each saves for the gradient.

Types are ONNX operator names, so that a network has one graph in every framework. Views, slices, reshapes, transposes
that only change strides, expansions, detached copies and shape arithmetic are no operators; a transpose that moves data
is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpudemand._validation import InputError

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

    Parameters
    ----------
    name : str
        ATen or Python name: ``conv2d``, ``relu_``, ``__iadd__``.

    Examples
    --------
    >>> torch_type("relu_"), torch_type("__iadd__"), torch_type("my_op")
    ('Relu', 'Add', 'Other')
    """
    plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
    return TORCH_TYPES.get(plain, OTHER)


def tensorflow_type(name: str) -> str:
    """Return the canonical type of a TensorFlow graph operation.

    Examples
    --------
    >>> tensorflow_type("DepthwiseConv2dNative"), tensorflow_type("AddV2"), tensorflow_type("While")
    ('Conv', 'Add', 'Other')
    """
    return TENSORFLOW_TYPES.get(name, OTHER)


def convolution_kind(kernel: Sequence[int], groups: int, channels: int) -> str:
    """Class of a convolution by kernel and groups; the classes run at different speeds.

    Parameters
    ----------
    kernel : sequence of int
        Size along the spatial axes.
    groups, channels : int
        Number of groups and of input channels.

    Returns
    -------
    {"depthwise", "grouped", "1x1", "3x3", "large"}
        ``3x3``: at most 3 along every axis.

    Examples
    --------
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
        raise InputError(
            f"{unknown[0]!r} is no operator type; gpudemand.cost.operators.vocabulary.VOCABULARY lists them."
        )
    return tuple(types)
