"""The table of devices: figures are consistent with each other and with datasheets, and names are found."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.datasets.devices import PRECISIONS, Device, _key, aliases, device, devices, save_device

TABLE = devices()
GPUS = TABLE[TABLE["kind"] == "gpu"]
#: CDNA 3 and 4 issue two instructions a clock to each lane.
OPERATIONS_PER_CLOCK = {"CDNA 3": 4, "CDNA 4": 4}


def test_names_are_unique():
    assert len(TABLE) >= 60
    assert TABLE.index.is_unique
    assert (TABLE["kind"] == "cpu").sum() >= 2
    assert {"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell"} <= set(
        TABLE["architecture"]
    )


def test_every_row_has_a_source_and_the_required_columns():
    needed = ["memory_gib", "bandwidth_gb_s", "fp32_tflops", "sms", "cores", "boost_clock_mhz", "l2_mib", "year"]
    assert TABLE[needed].notna().all().all()
    assert (TABLE[["vendor", "die", "architecture", "source"]] != "").all().all()
    assert GPUS[["tdp_w", "interconnect_gb_s", "pcie_generation"]].notna().all().all()


def test_single_precision_is_lanes_times_clock():
    per_clock = TABLE["architecture"].map(OPERATIONS_PER_CLOCK).fillna(2)
    computed = per_clock * TABLE["cores"] * TABLE["boost_clock_mhz"] / 1e6
    wrong = (computed / TABLE["fp32_tflops"] - 1).abs()
    assert wrong.max() < 0.05, wrong.nlargest(3)


def test_peaks_of_precisions_are_in_the_ratios_of_hardware():
    tensor = GPUS["fp16_tensor_tflops"]
    assert ((GPUS["bf16_tensor_tflops"] / tensor).dropna() <= 1).all()
    ratio = (GPUS["fp8_tensor_tflops"] / tensor).dropna()
    assert ratio.between(1.99, 2.01).all()
    ratio = (GPUS["tf32_tflops"] / tensor).dropna()
    assert ratio.between(0.49, 0.51).all()
    assert (tensor.dropna() > 1.9 * GPUS.loc[tensor.notna(), "fp32_tflops"]).all()
    assert (GPUS["fp64_tflops"] <= GPUS["fp32_tflops"]).all()
    assert ((GPUS["fp64_tensor_tflops"] / GPUS["fp64_tflops"]).dropna().between(1.9, 2.1)).all()
    assert (GPUS["cores"] / GPUS["sms"]).isin([64, 128, 192]).all()


def test_newer_features_appear_with_their_generation():
    early = GPUS["architecture"].isin(["Kepler", "Maxwell", "Pascal"])
    assert GPUS.loc[early, "fp16_tensor_tflops"].isna().all()
    assert (
        GPUS.loc[GPUS["architecture"].isin(["Volta", "Turing"]), ["tf32_tflops", "bf16_tensor_tflops"]]
        .isna()
        .all(axis=None)
    )
    modern = GPUS["architecture"].isin(["Ampere", "Ada", "Hopper", "Blackwell"])
    assert GPUS.loc[modern, ["tf32_tflops", "bf16_tensor_tflops"]].notna().all(axis=None)


def test_memory_is_plausible():
    usable = (TABLE["usable_gib"] / TABLE["memory_gib"]).dropna()
    assert usable.between(0.9, 1.0).all()
    balance = GPUS["fp32_tflops"] * 1e12 / (GPUS["bandwidth_gb_s"] * 1e9)
    assert balance.between(5, 150).all(), balance.agg(["idxmin", "idxmax"])


def test_devices_with_one_die_agree_in_its_features():
    for column in ("architecture", "vendor", "compute_capability"):
        assert (GPUS.groupby("die")[column].agg("nunique") < 2).all()


#: Dense figures copied from data sheets, independently of the table: name, column, value.
DATA_SHEETS = [
    ("K80", "memory_gib", 12),
    ("P100-PCIE-16GB", "fp32_tflops", 9.3),
    ("P100-SXM2-16GB", "fp16_tflops", 21.2),
    ("P40", "int8_tops", 47),
    ("V100-SXM2-32GB", "fp16_tensor_tflops", 125),
    ("V100-PCIE-32GB", "fp16_tensor_tflops", 112),
    ("V100S", "bandwidth_gb_s", 1134),
    ("T4", "fp16_tensor_tflops", 65),
    ("T4", "int8_tops", 130),
    ("Quadro RTX 8000", "fp16_tensor_tflops", 130.5),
    ("RTX 2080 Ti", "fp16_tensor_tflops", 53.8),
    ("A100-SXM4-80GB", "bandwidth_gb_s", 2039),
    ("A100", "bf16_tensor_tflops", 312),
    ("A30", "tf32_tflops", 82),
    ("A10", "fp16_tensor_tflops", 125),
    ("A10", "int8_tops", 250),
    ("A2", "fp16_tensor_tflops", 18),
    ("A40", "fp16_tensor_tflops", 149.7),
    ("RTX A6000", "fp16_tensor_tflops", 154.8),
    ("RTX A4000", "fp16_tensor_tflops", 76.7),
    ("RTX 3090", "fp16_tensor_tflops", 71),
    ("RTX 3090", "tf32_tflops", 35.6),
    ("L4", "fp16_tensor_tflops", 121),
    ("L4", "fp8_tensor_tflops", 242.5),
    ("L40", "fp16_tensor_tflops", 181),
    ("L40S", "fp8_tensor_tflops", 733),
    ("RTX 6000 Ada", "fp8_tensor_tflops", 728.5),
    ("RTX 4090", "fp16_tensor_tflops", 165.2),
    ("RTX 4090", "int8_tops", 660.6),
    ("H100 PCIe", "bf16_tensor_tflops", 756),
    ("H100", "tf32_tflops", 494.7),
    ("H100 NVL", "fp8_tensor_tflops", 1671),
    ("H20", "fp16_tensor_tflops", 148),
    ("H200", "memory_gib", 141),
    ("B200", "fp8_tensor_tflops", 4500),
    ("RTX 5090", "fp16_tensor_tflops", 209.5),
    ("RTX 5090", "tf32_tflops", 104.8),
    ("MI100", "fp16_tensor_tflops", 184.6),
    ("MI250X", "fp64_tflops", 23.9),
    ("MI300X", "bf16_tensor_tflops", 1307.4),
    ("MI325X", "bandwidth_gb_s", 6000),
    ("MI350X", "fp16_tensor_tflops", 2300),
    ("MI355X", "fp8_tensor_tflops", 5000),
    ("MI355X", "bandwidth_gb_s", 8000),
    ("NVIDIA B300 SXM6 AC", "bf16_tensor_tflops", 2250),
    ("NVIDIA GB300", "bf16_tensor_tflops", 2500),
    ("RTX PRO 6000 Blackwell Max-Q", "fp32_tflops", 110),
    ("RTX 5060", "memory_gib", 8),
    ("RTX 5050", "bandwidth_gb_s", 320),
]


@pytest.mark.parametrize(("name", "column", "value"), DATA_SHEETS)
def test_figures_match_datasheets(name, column, value):
    assert getattr(device(name), column) == pytest.approx(value, rel=0.015)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("nvidia h100 80gb hbm3", "H100 SXM5"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 SXM2 32GB"),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("GeForce_RTX_2080_Super_with_Max-Q_Design", "GeForce RTX 2080 SUPER Max-Q"),
        ("Quadro RTX 8000 computeCapability: 7.5", "Quadro RTX 8000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("1080Ti", "GeForce GTX 1080 Ti"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("AMD EPYC", "AMD EPYC (2 cores)"),
    ],
)
def test_a_device_is_found_by_its_aliases(alias, name):
    assert device(alias).name == name


def test_aliases_are_unique():
    meanings: dict[str, set[str]] = {}
    for alias, name in aliases(devices()).items():
        meanings.setdefault(_key(alias), set()).add(name)
    assert {key: names for key, names in meanings.items() if len(names) > 1} == {}


def test_devices_of_the_public_measurements_are_known(shared_data):
    for path, column in [
        ("lambda_pytorch/runs.csv.gz", "gpu"),
        ("lambda_tensorflow/runs.csv.gz", "gpu"),
        ("pytorch_gpu_benchmark/runs.csv", "gpu"),
        ("schedtune/model_stats.csv", "gpu_inferred"),
        ("neusight/e2e.csv", "gpu"),
        ("neusight/op_conv_train.csv.gz", "gpu"),
    ]:
        place = shared_data / "cost" / path
        if place.is_file():
            columns = pd.read_csv(place, nrows=0).columns
            for name in pd.read_csv(place, usecols=[column])[column].unique() if column in columns else ():
                assert device(name).kind == "gpu"


def test_an_unknown_device_names_the_nearest():
    with pytest.raises(InputError, match=r"Did you mean 'H200'\?.*add one with save_device"):
        device("H2000")
    with pytest.raises(InputError, match="got int"):
        device(3090)


def test_a_custom_device_is_returned_unchanged():
    mine = replace(device("H100"), name="prototype", bandwidth_gb_s=5000.0)
    assert device(mine) is mine
    assert mine.bandwidth == 5e12
    bare = Device("bare", memory_gib=40, bandwidth_gb_s=1000, fp32_tflops=20)
    assert bare.usable_memory_gib == pytest.approx(39)
    assert bare.precisions == ("fp32", "fp16")
    assert math.isnan(bare.interconnect_bandwidth)
    for wrong in ({"memory_gib": 0}, {"bandwidth_gb_s": math.nan}, {"kind": "tpu"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            replace(bare, **wrong)


def test_half_precision_without_fast_units_is_no_slower_than_single():
    assert device("GTX 1080 Ti").peak("amp") == device("GTX 1080 Ti").peak("fp32")
    assert device("P100").peak("fp16") == 2 * device("P100").peak("fp32")


def test_missing_precisions_are_rejected():
    assert device("AMD EPYC").precisions == ("fp32", "bf16")
    assert device("Xeon Platinum 8380").peak("bf16") == device("Xeon Platinum 8380").peak("fp32")
    with pytest.raises(InputError, match="it can in fp32, bf16"):
        device("AMD EPYC").peak("amp")
    with pytest.raises(InputError, match=r"it can in fp32, tf32, fp16, bf16, and jobs from a configuration in fp8\.$"):
        device("H100").peak("fp4")
    with pytest.raises(InputError, match="Did you mean 'bf16'"):
        device("T4").peak("bf61")
    assert all(np.isfinite(device(name).peak(p)) for name in TABLE.index for p in device(name).precisions)
    assert device("H100").precisions == PRECISIONS


def test_the_command_prints_one_line_a_device():
    result = CliRunner().invoke(app, ["devices"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == len(TABLE) + 1
    (line,) = (line for line in lines if line.startswith("Tesla T4"))
    assert line.split() == ["Tesla", "T4", "TU104", "2018", "16", "320", "8.14", "-", "65.13", "-"]


def test_the_table_is_a_copy():
    mine = devices()
    mine.iloc[0, 0] = "changed"
    assert devices().iloc[0, 0] == TABLE.iloc[0, 0]


def test_a_saved_device_is_found_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUDEMAND_DEVICES", str(tmp_path))
    own = Device("Prototype 1", memory_gib=64, bandwidth_gb_s=2000, fp32_tflops=30, bf16_tensor_tflops=400)
    assert save_device(own).parent == tmp_path
    found = device("prototype-1")
    assert repr(found) == repr(own)
    assert found.precisions == own.precisions
    with pytest.raises(InputError, match="the table has a 'H200' already"):
        save_device(replace(own, name="H200"))
    with pytest.raises(InputError, match="is not in the table"):
        device("Prototype 2")
