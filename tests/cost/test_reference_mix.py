"""The reference mix: ratios of run time between types of GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.reference_mix import kinds, mix_ratios
from gpudemand.datasets.devices import device


@pytest.fixture(scope="module")
def table():
    return mix_ratios("V100", "H100")


def test_a_row_for_each_kind_and_one_for_all(table):
    assert table.index.tolist() == [*kinds(), "all"]
    assert (table["ratio-lo-90"] < table["ratio"]).all()
    assert (table["ratio"] < table["ratio-hi-90"]).all()
    assert table["fits"].between(0, 1).all()
    assert table.loc["all", "ratio"] == pytest.approx(table["ratio"].drop("all").mean())


def test_the_same_type_is_exactly_as_fast():
    same = mix_ratios("A100", "A100 SXM4 40GB")
    assert same.drop(columns="fits").to_numpy() == pytest.approx(1.0)


def test_weights_choose_the_kinds_and_an_unknown_mix_is_less_certain(table):
    stated = mix_ratios("V100", "H100", weights={"language_small": 3, "recommendation": 1})
    expected = 0.75 * table.loc["language_small", "ratio"] + 0.25 * table.loc["recommendation", "ratio"]
    assert stated.loc["all", "ratio"] == pytest.approx(expected)
    alike = mix_ratios("V100", "H100", weights=dict.fromkeys(kinds(), 1.0))
    assert alike.loc["all", "ratio"] == pytest.approx(table.loc["all", "ratio"])
    width = [np.log(one.loc["all", "ratio-hi-90"] / one.loc["all", "ratio-lo-90"]) for one in (alike, table)]
    assert width[0] < width[1]


def test_what_the_host_bounds_is_not_faster_on_a_faster_gpu(table):
    slow = mix_ratios("V100", "H100", host=9e-4)
    assert slow.loc["vision_small", "ratio"] == pytest.approx(1.0, abs=0.02)
    assert (slow["ratio"] >= table["ratio"]).all()


@pytest.mark.slow
def test_a_gpu_with_twice_of_everything_takes_half_as_long():
    old = device("A100")
    names = ("bandwidth_gb_s", "fp32_tflops", "tf32_tflops", "fp16_tensor_tflops", "bf16_tensor_tflops")
    new = replace(old, name="twice", **{name: 2.0 * getattr(old, name) for name in names})
    found = mix_ratios(old, new, host=1e-8)
    assert found.loc["all", "ratio"] == pytest.approx(0.5, abs=0.07)


def test_what_does_not_fit_a_small_card():
    small = replace(device("A100"), name="small", memory_gib=6.0, usable_gib=6.0)
    assert mix_ratios("A100", small).loc["language_large", "fits"] < 0.05


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("A100", "gpu-of-mine"), {}, "the speed of 'gpu-of-mine' is not known"),
        (("A100", "AMD EPYC"), {}, "is a CPU"),
        (("A100", "H100"), {"weights": {"visoin_small": 1}}, "vision_small"),
        (("A100", "H100"), {"weights": {"vision_small": 0}}, "all zero"),
        (("A100", "H100"), {"weights": {"vision_small": -1}}, "weights"),
    ],
)
def test_errors_say_what_to_do(arguments, options, message):
    with pytest.raises(InputError, match=message):
        mix_ratios(*arguments, **options)


@pytest.mark.slow
def test_no_framework_is_imported():
    code = "from gpudemand.cost import mix_ratios; mix_ratios('A100', 'H100')"
    code += "; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
