"""Roofline terms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.graph.autocast import autocast_bytes
from gpudemand.cost.graph.op_graph import Operator, OpGraph
from gpudemand.cost.roofline.data_parallel import parallel_terms
from gpudemand.cost.roofline.roofline import operator_kinds, step_terms

JOB = {
    "batch_size": 8, "precision": "fp32", "layout": "contiguous", "mode": "train", "optimizer_states": 1.0, "n_gpus": 1,
    "device_peak_tflops": 10.0, "device_bandwidth_gb_s": 500.0, "device_sms": 80.0,
    "device_boost_clock_mhz": 1500.0, "device_interconnect_gb_s": 32.0,
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
    return OpGraph.from_operators(list(operators), edges, n_trainable=1000, n_parameters=1000)


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


def test_rows_of_different_networks_stay_in_order() -> None:
    small, large = chain(conv(16)), chain(conv(128))
    mixed = step_terms(jobs(batch_size=[8, 8, 8]).set_axis(["a", "b", "c"]), [small, large, small])
    assert list(mixed.index) == ["a", "b", "c"]
    pd.testing.assert_series_equal(mixed.loc["a"], mixed.loc["c"], check_names=False)
    assert mixed.loc["b", "work:conv_3x3:flops"] > mixed.loc["a", "work:conv_3x3:flops"]


def test_inference_has_no_backward_pass_and_no_update() -> None:
    terms = step_terms(jobs(mode=["infer"]), [chain(conv())])
    assert terms[[name for name in terms if ":back:" in name or name.endswith("update")]].to_numpy().sum() == 0


def test_a_step_without_optimizer_has_no_update() -> None:
    assert step_terms(jobs(optimizer_states=[np.nan]), [chain(conv())])["work:update"].tolist() == [0.0]


def test_layout_is_converted_only_for_tensor_cores_without_channels_last() -> None:
    table = jobs(precision=["fp32", "fp16", "fp16"], layout=["contiguous", "contiguous", "channels_last"])
    transposed = step_terms(table, [chain(conv())] * 3)["work:conv_3x3:transpose"]
    assert (transposed > 0).tolist() == [False, True, False]


def test_convolutions_of_few_channels_have_own_terms() -> None:
    terms = step_terms(jobs(batch_size=[8, 8]), [chain(conv(16)), chain(conv(256))])
    assert (terms["work:conv_3x3:flops<24"] > 0).tolist() == [True, False]


def test_last_wave_vanishes_for_large_batches() -> None:
    terms = step_terms(jobs(batch_size=[1, 4096]), [chain(conv())] * 2)
    idle = terms["work:conv_3x3:waves"] / terms["work:conv_3x3:flops"]
    assert idle[0] > 10 > 0.1 > idle[1]


def test_kinds_of_element_wise_operators() -> None:
    nodes = chain(plain("Mul"), plain("Mul", weight=4.0), plain("Mul", read=440.0), plain("Add", read=800.0)).nodes
    assert operator_kinds(nodes).tolist() == ["elementwise", "affine", "broadcast", "elementwise"]


def test_autocast_halves_the_output_of_products_and_casts_their_inputs() -> None:
    moved = autocast_bytes(chain(conv(), plain("Relu"), plain("LayerNormalization"), conv()))
    assert (moved["written"] / [65536.0, 400.0, 400.0, 65536.0]).tolist() == [0.5, 0.5, 1.0, 0.5]
    assert (moved["cast"] > 0).tolist() == [True, False, False, True]
    assert autocast_bytes(chain(conv()), enabled=False)["cast"].sum() == 0


def test_reduction_follows_the_ring_and_the_network() -> None:
    table = jobs(n_gpus=[1, 2, 8, 16]).assign(n_nodes=[1, 1, 1, 2])
    terms = parallel_terms(chain(conv()), table, np.ones(4))
    np.testing.assert_allclose(terms["reduce"] / terms["reduce"][1], [0, 1, 1.75, 1.875])
    assert (terms["network"] > 0).tolist() == [False, False, False, True]


def test_invalid_input_is_reported() -> None:
    with pytest.raises(InputError, match="graphs has 1 networks for 2 jobs"):
        step_terms(jobs(batch_size=[1, 2]), [chain(conv())])
    with pytest.raises(InputError, match="lacks the column"):
        step_terms(jobs().drop(columns="device_sms"), [chain(conv())])
