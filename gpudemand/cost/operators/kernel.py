"""`Kernel`: one kernel launch of a training step and its work, and the kinds of kernels."""

from __future__ import annotations

from typing import NamedTuple

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

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    backward : bool
        Whether it belongs to the backward pass.
    is_autocast : bool
        A cast that happens only under automatic mixed precision.
    channels, inner : int
        Of a product with parameters the two extents of these, of other products the two smaller ones, of convolutions
        the output channels and the input channels of a group; 0 for other kinds.
    weights, width : int
        Weights of a convolution, and the longest side of its filters; 0 where unknown.
    is_direct : bool
        A convolution that libraries have no fast algorithm for: dilated, or over other than two spatial axes.
    flops, bytes, half_bytes : float
        Per sample: operations, and bytes read and written in single precision and under autocast.
    fixed_bytes, fixed_half_bytes, fixed_flops : float
        Independent of the batch: of parameters, their gradients, and what is computed from them alone.
    calls : int
        Number of such launches.
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
