"""Roofline terms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.cost.graph_features import autocast_bytes
from gpudemand.cost.host import LAUNCHES, STEP_LAUNCHES, TENSOR_LAUNCHES
from gpudemand.cost.operators import Kernel
from gpudemand.cost.roofline import LOWER_BOUND, parallel_terms, step_terms

JOB = {
    "batch_size": 8, "precision": "fp32", "layout": "contiguous", "mode": "train", "optimizer_states": 1.0, "n_gpus": 1,
    "device_peak_tflops": 10.0, "device_fp32_tflops": 10.0, "device_bandwidth_gb_s": 500.0, "device_sms": 80.0,
    "device_interconnect_gb_s": 32.0, "device_l2_mib": 0.0,
}  # fmt: skip


def conv(channels: int = 64, kind: str = "3x3") -> Operator:
    flops, written = 2.0 * 9 * channels * channels * 256, 4.0 * channels * 256
    shape = (1, channels, 16, 16)
    return Operator(
        "Conv", kind, "c", "conv2d", shape, flops, 9 * channels**2, 36.0 * channels**2, written, written, written
    )


def plain(kind: str, weight: float = 0.0, read: float = 400.0) -> Operator:
    return Operator(kind, "", "x", kind.lower(), (1, 100), 0.0, 0, weight, read, 400.0, 0.0)


def chain(*operators: Operator) -> OpGraph:
    edges = [(i, i + 1) for i in range(len(operators) - 1)]
    first = operators[0].output_shape[1:]  # as many channels as the first operator has
    return OpGraph.from_operators(list(operators), edges, n_trainable=1000, n_parameters=1000, input_shapes=(first,))


def jobs(**columns: object) -> pd.DataFrame:
    n = max((len(value) for value in columns.values() if isinstance(value, list)), default=1)
    return pd.DataFrame({name: columns.get(name, value) for name, value in JOB.items()}, index=range(n))


def total(table: pd.DataFrame) -> np.ndarray:
    return table.drop(columns="work:start").sum(axis=1).to_numpy()


def test_work_grows_with_the_batch() -> None:
    table = jobs(batch_size=[1, 2, 4, 64, 512])
    assert (np.diff(total(step_terms(table, [chain(conv(), plain("Relu"))] * 5))) > 0).all()


def test_a_faster_device_takes_less() -> None:
    table = jobs(device_peak_tflops=[10.0, 20.0], device_bandwidth_gb_s=[500.0, 1000.0])
    terms = step_terms(table, [chain(conv())] * 2)
    bound = terms[[name for name in terms if name.endswith(("bytes", "flops", "update"))]]
    np.testing.assert_allclose(bound.iloc[0], 2 * bound.iloc[1])


def test_a_kernel_reads_from_the_cache_what_fits_into_half_of_it() -> None:
    """Half of the bytes of a kernel are read; a device that says nothing of its cache has that of most."""
    n_bytes = 32 * (400 + 400)
    caches = [0.0, n_bytes / 4 / 2**20, 6.0, np.nan]
    table = jobs(batch_size=32, mode="infer", device_l2_mib=caches)
    moved = step_terms(table, [chain(plain("Relu"))] * 4)["work:pointwise:bytes"] * 500e9
    np.testing.assert_allclose(moved, np.array([1, 7 / 8, 1 / 2, 1 / 2]) * n_bytes)


def test_rows_of_different_networks_stay_in_order() -> None:
    small, large = chain(conv(16)), chain(conv(128))
    mixed = step_terms(jobs(batch_size=[8, 8, 8]).set_axis(["a", "b", "c"]), [small, large, small])
    assert list(mixed.index) == ["a", "b", "c"]
    pd.testing.assert_series_equal(mixed.loc["a"], mixed.loc["c"], check_names=False)
    assert mixed.loc["b", "work:conv_3x3:flops"] > mixed.loc["a", "work:conv_3x3:flops"]


def test_inference_has_no_backward_pass_and_no_update() -> None:
    terms = step_terms(jobs(mode=["infer", "train"]), [chain(conv())] * 2)
    assert terms["work:conv_3x3:flops"][1] == pytest.approx(3 * terms["work:conv_3x3:flops"][0])
    assert terms["work:update"].tolist()[0] == 0.0


def test_checkpointing_repeats_the_forward_pass() -> None:
    table = pd.concat([jobs(), jobs()], ignore_index=True).assign(checkpointing=[0.0, 1.0])
    flops = step_terms(table, [chain(conv())] * 2)["work:conv_3x3:flops"]
    assert flops[1] == pytest.approx(4 / 3 * flops[0])


def test_a_step_without_optimizer_has_no_update() -> None:
    assert step_terms(jobs(optimizer_states=[np.nan]), [chain(conv())])["work:update"].tolist() == [0.0]


def test_layout_is_converted_only_for_tensor_cores_without_channels_last() -> None:
    table = jobs(precision=["fp32", "tf32", "fp16", "fp16"], layout=["contiguous"] * 3 + ["channels_last"])
    transposed = step_terms(table, [chain(conv())] * 4)["work:layout"]
    assert (transposed > 0).tolist() == [False, True, True, False]


def test_channels_of_batch_norms_are_summed_up_one_a_multiprocessor_in_contiguous_training() -> None:
    norms = [Operator("BatchNormalization", "", "x", "batch_norm", (1, n, 16, 16)) for n in (40, 80, 160)]
    seconds = [step_terms(jobs(), [chain(norm)])["work:batch_norm:channels"][0] for norm in norms]
    assert JOB["device_sms"] == 80
    assert np.array(seconds) / seconds[1] == pytest.approx([1, 1, 2])
    table = jobs(layout=["channels_last", "contiguous"], mode=["train", "infer"])
    assert step_terms(table, [chain(norms[0])] * 2)["work:batch_norm:channels"].tolist() == [0.0, 0.0]


def test_narrow_convolutions_fill_their_tiles_less() -> None:
    terms = step_terms(jobs(batch_size=[8, 8]), [chain(conv(16)), chain(conv(256))])
    filled = terms["work:conv_3x3:flops"] / terms["work:conv_3x3:tiles"]
    assert filled.tolist() == pytest.approx([(16 / 128) ** 2, 1.0])


@pytest.mark.parametrize("changed", ["batch_size", "device_peak_tflops", "device_bandwidth_gb_s", "device_l2_mib"])
def test_no_term_falls_as_the_job_grows_or_the_device_slows(changed: str) -> None:
    values = [1, 2, 64, 65, 500] if changed == "batch_size" else [1000.0, 500.0, 20.0, 10.0, 1.0]
    terms = step_terms(jobs(**{changed: values}), [chain(conv(), plain("Relu"))] * 5)
    assert (terms.diff().dropna() >= 0).all(axis=None)


def test_the_bound_is_the_time_at_the_peaks() -> None:
    # Training takes three passes of two operations a multiply-add; 3x3 kernels may be computed by Winograd's method.
    dense = plain("Gemm")._replace(flops=1e9, weight_bytes=4e9)
    compute, memory = step_terms(jobs(batch_size=[512, 1]), [chain(dense)] * 2)[LOWER_BOUND]
    assert compute == pytest.approx(3 * 512 * 1e9 / 10e12)
    assert memory == pytest.approx(3 * 4e9 / 500e9)
    winograd = step_terms(jobs(), [chain(conv())])[LOWER_BOUND][0]
    assert winograd == pytest.approx(3 * 8 * conv().flops / 2.25 / 10e12)


def test_autocast_halves_the_output_of_products_and_casts_their_inputs() -> None:
    moved = autocast_bytes(chain(conv(), plain("Relu"), plain("LayerNormalization"), conv()))
    assert (moved["written"] / [65536.0, 400.0, 400.0, 65536.0]).tolist() == [0.5, 0.5, 1.0, 0.5]
    assert (moved["cast"] > 0).tolist() == [True, False, False, True]


def test_reduction_follows_the_ring_and_the_network() -> None:
    table = jobs(n_gpus=[1, 2, 8, 16]).assign(n_nodes=[1, 1, 1, 2])
    terms = parallel_terms(chain(conv()), table, np.ones(4))
    np.testing.assert_allclose(terms["allreduce"] / terms["allreduce"][1], [0, 1, 1.75, 1.875])
    assert (terms["network"] > 0).tolist() == [False, False, False, True]


def test_reduction_hides_behind_the_step_but_for_its_last_bucket() -> None:
    network = replace(chain(conv()), n_trainable=10**9)
    table = jobs(n_gpus=[8] * 3)
    exposed = parallel_terms(network, table, np.array([0.0, 0.1, 100.0]))["allreduce"]
    assert exposed[0] - exposed[1] == pytest.approx(0.25 * 0.1)
    assert exposed[2] == pytest.approx(exposed[0] * 25 * 2**20 / 4e9)


def test_invalid_input_is_reported() -> None:
    with pytest.raises(InputError, match="graphs has 1 values for 2 jobs"):
        step_terms(jobs(batch_size=[1, 2]), [chain(conv())])
    with pytest.raises(InputError, match="lacks the column"):
        step_terms(jobs().drop(columns="device_sms"), [chain(conv())])


def test_work_on_parameters_alone_does_not_grow_with_the_batch() -> None:
    kernels = pd.DataFrame([Kernel("gemm", channels=128, inner=128, flops=2e9, fixed_flops=1e9)])
    jobs = pd.DataFrame([JOB, {**JOB, "batch_size": 16}])
    terms = step_terms(jobs, [replace(chain(plain("Relu")), kernels=kernels)] * 2)
    for name in ("work:gemm:flops", "work:gemm:tiles", LOWER_BOUND):
        assert terms[name].to_numpy() == pytest.approx([17e9 / 10e12, 33e9 / 10e12])


def test_graphs_without_fixed_operations_can_be_read() -> None:
    kernels = pd.DataFrame([Kernel("gemm", channels=128, inner=128, flops=2e9)])
    graphs = [replace(chain(plain("Relu")), kernels=table) for table in (kernels, kernels.drop(columns="fixed_flops"))]
    with_zeros, without = (step_terms(pd.DataFrame([JOB]), [graph]) for graph in graphs)
    pd.testing.assert_frame_equal(with_zeros, without)


def test_rows_of_sparse_embeddings_that_no_sample_looks_up_are_neither_updated_nor_exchanged() -> None:
    dense, sparse = (replace(chain(conv()), n_trainable=10**9, n_sparse=number) for number in (0, 10**9 - 1000))
    table = jobs(n_gpus=[2, 2])
    terms = step_terms(table, [dense, sparse])
    for name in ("work:update", "work:allreduce"):
        assert terms[name][0] == pytest.approx(1e6 * terms[name][1], rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "device", "slower"), [("fp32", "cuda", 2.25), ("tf32", "cuda", 1), ("fp32", "cpu", 1)]
)
def test_minimal_filtering_is_for_undilated_images_in_single_precision(precision, device, slower) -> None:
    kernels = [pd.DataFrame([Kernel("conv_3x3", is_direct=direct, flops=2e9)]) for direct in (False, True)]
    graphs = [replace(chain(plain("Relu")), kernels=table) for table in kernels]
    table = jobs(precision=[precision] * 2).assign(device=device)
    terms = step_terms(table, graphs)
    assert terms["work:conv_3x3:flops"][1] == pytest.approx(slower * terms["work:conv_3x3:flops"][0])
    assert terms[LOWER_BOUND][1] == pytest.approx(2.25 * terms[LOWER_BOUND][0])


@pytest.mark.parametrize(("precision", "saved"), [("fp32", 25 / 2), ("tf32", 1)])
def test_the_bound_allows_for_convolution_by_fourier_transforms(precision: str, saved: float) -> None:
    kernels = pd.DataFrame([Kernel("conv_large", channels=64, inner=32, weights=25 * 64 * 32, width=25, flops=2e9)])
    terms = step_terms(jobs(precision=precision), [replace(chain(plain("Relu")), kernels=kernels)])
    assert terms[LOWER_BOUND][0] == pytest.approx(8 * 2e9 / saved / 10e12)
    assert terms["work:conv_large:flops"][0] == pytest.approx(8 * 2e9 / 10e12)  # the price is not by the bound


def test_wide_depthwise_filters_are_bound_by_operations_below_the_peak() -> None:
    torch = pytest.importorskip("torch")
    nets = [torch.nn.Conv1d(256, 256, width, padding=width // 2, groups=256) for width in (11, 33)]
    with torch.device("meta"):
        graphs = [OpGraph.from_torch(net, (256, 1000)) for net in nets]
    narrow, wide = (step_terms(jobs(mode=["infer", "train"]), [graph] * 2) for graph in graphs)
    ratio = wide / narrow
    # Forward as a whole, and of the backward pass half: the gradient of the filters is priced apart.
    expected = [3 / 0.12, 3 * (1 / 0.12 + (1 + 0.5 * (1 / 0.12 - 1))) / 2]
    assert ratio["work:conv_depthwise:flops"].tolist() == pytest.approx(expected, rel=0.02)
    assert ratio[LOWER_BOUND].max() == pytest.approx(3, 0.02)  # at the peak, whatever the width


def eager(**columns: object) -> pd.DataFrame:
    about = {"framework": "torch", "execution": "eager", "device": "cuda"}
    return jobs(**{name: value for name, value in columns.items() if name not in about}).assign(
        **{**about, **{name: value for name, value in columns.items() if name in about}}
    )


def test_the_host_launches_the_kernels_of_eager_steps_on_gpus_and_updates_each_tensor() -> None:
    graph = replace(chain(conv(), plain("Relu")), n_tensors=2)
    both = step_terms(eager(mode=["train", "infer"]), [graph] * 2)[LAUNCHES]
    assert both[1] == 2
    without = step_terms(eager(), [replace(graph, n_tensors=0)])[LAUNCHES][0]
    assert without > 2 + STEP_LAUNCHES
    assert both[0] == pytest.approx(without + 2 * TENSOR_LAUNCHES)
    for other in ({"execution": "compiled"}, {"framework": "keras"}, {"device": "cpu"}):
        assert step_terms(eager(**other), [graph])[LAUNCHES][0] == 0


def test_time_steps_of_a_recurrent_layer_are_launched_at_once_on_gpus_and_wait_for_one_another() -> None:
    steps, weight_bytes = 100, 4e6
    layer = Operator(
        "LSTM", "", "l", "lstm", (1, 100, 512), steps * weight_bytes / 2, 10**6, weight_bytes, 400.0, 400.0, 0.0
    )
    graph = chain(layer)
    on_gpu, on_cpu = (step_terms(eager(mode="infer", device=name), [graph]) for name in ("cuda", "cpu"))
    assert on_gpu[LAUNCHES][0] == pytest.approx(1)
    launched = [name for name in on_gpu if name.endswith(":launch")]
    assert on_cpu[launched].sum(axis=1)[0] == on_gpu[launched].sum(axis=1)[0] == pytest.approx(steps * 1e-5)


@pytest.mark.parametrize(
    ("device", "execution", "passes"), [("cuda", "eager", 6), ("cuda", "compiled", 7 / 3), ("cpu", "eager", 7 / 3)]
)
def test_adam_in_eager_steps_on_gpus_passes_over_the_parameters_for_each_operation(device, execution, passes) -> None:
    terms = step_terms(eager(optimizer_states=[0.0, 2.0], device=device, execution=execution), [chain(conv())] * 2)
    assert terms["work:update"][1] == pytest.approx(passes * terms["work:update"][0])
