"""Public measurements of step time as tables with common columns.

A row is one job and its step time, repeats collapsed to their median. `COLUMNS` are what is known before a job runs;
``graph`` is a key of `benchmarks.cost.traced`, ``network`` is for grouping and printing and never a feature.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

#: Columns of a job, then of the source of its measurement.
COLUMNS = (
    *("graph", "network", "mode", "device", "n_gpus", "n_nodes", "batch_size", "precision", "layout", "framework"),
    *("version", "compiled", "optimizer", "host", "source"),
)
_DEFAULTS = {
    "mode": "train", "n_gpus": 1, "n_nodes": 1, "precision": "fp32", "layout": "nchw", "framework": "pytorch",
    "version": 0.0, "compiled": False, "optimizer": "momentum", "host": "",
}  # fmt: skip
#: mode, precision, layout, PyTorch, (CUDA,) device, compiled.
_TIMM = re.compile(
    r"benchmark-(?P<mode>train|infer)-(?P<precision>\w+)-(?P<layout>nchw|nhwc)-pt(?P<torch>\d+)"
    r"(?:-cu\d+)?-(?P<device>(?:cpu-)?\w+)(?P<compiled>-dynamo)?\.csv"
)


def collapsed(rows: pd.DataFrame, source: str) -> pd.DataFrame:
    """Fill in defaults, drop rows without a time, and replace repetitions by their median."""
    missing = {name: value for name, value in _DEFAULTS.items() if name not in rows.columns}
    rows = rows.assign(**missing, source=source)
    sound = np.isfinite(rows["step_time_s"]) & (rows["step_time_s"] > 0) & (rows["batch_size"] > 0)
    return rows[sound].groupby(list(COLUMNS), as_index=False, dropna=False, sort=False)["step_time_s"].median()


def timm(folder: Path) -> pd.DataFrame:
    """Training steps and inference of timm networks on synthetic images."""
    files = sorted(folder.glob("benchmark-*.csv"), key=lambda path: ("-train-" not in path.name, path.name))
    return pd.concat([_timm_file(path) for path in files if _TIMM.fullmatch(path.name)], ignore_index=True)


def _timm_file(path: Path) -> pd.DataFrame:
    match = _TIMM.fullmatch(path.name)
    about: dict[str, str] = match.groupdict() if match else {}
    rows = pd.read_csv(path).rename(columns=lambda name: name.removeprefix(f"{about['mode']}_"))
    # timm has used fused attention since PyTorch 2.
    library = "timm" if int(about["torch"]) < 200 else "timm-sdpa"
    return collapsed(
        pd.DataFrame(
            {
                "graph": library + ":" + rows["model"] + "@" + rows["img_size"].astype(int).astype(str),
                "network": rows["model"],
                "mode": about["mode"],
                "device": about["device"].removeprefix("cpu-"),
                "batch_size": rows["batch_size"].astype(float),
                "precision": about["precision"],
                "layout": about["layout"],
                "version": float(about["torch"][0]) + float(about["torch"][1:]) / 100,
                "compiled": about["compiled"] is not None,
                "step_time_s": rows["step_time"] / 1e3,
            }
        ),
        "timm",
    )


#: Network -> graph, and how many items (tokens, frames) of throughput a sample is; GNMT counts both languages' tokens.
_LAMBDA = {
    "SSD": ("own:ssd300@300", 1), "resnet50": ("torchvision:resnet50@224", 1), "maskrcnn": ("own:maskrcnn@800", 1),
    "bert_base_squad": ("own:bert_base@384", 1), "bert_large_squad": ("own:bert_large@384", 1),
    "gnmt": ("own:gnmt@50", 100), "ncf": ("own:ncf@1", 1), "tacotron2": ("own:tacotron2@560", 560),
    "waveglow": ("own:waveglow@8000", 8000), "transformerxlbase": ("own:transformerxl_base@192", 192),
    "transformerxllarge": ("own:transformerxl_large@384", 384),
}  # fmt: skip
_ADAM = ("bert", "gnmt", "ncf", "tacotron2", "waveglow", "transformer")
_GLOBAL_BATCH = ("ncf", "transformerxlbase", "transformerxllarge")


def lambda_pytorch(folder: Path) -> pd.DataFrame:
    """NVIDIA's example networks on many GPUs, one and several."""
    rows = pd.read_csv(folder / "runs.csv.gz")
    rows = rows[rows["model"].isin(list(_LAMBDA)) & rows["throughput"].notna()]
    # NCF on four GPUs and more claims up to 1e10 samples a second.
    rows = rows[(rows["model"] != "ncf") | (rows["n_gpu"] < 4)]
    # SSD of the later suites counts its GPUs twice: eight of them would be sixty times as fast as one.
    twice = (rows["model"] == "SSD") & rows["suite"].isin(["v1", "v2"])
    rows = rows.assign(throughput=rows["throughput"] / np.where(twice, rows["n_gpu"], 1))
    divided = rows["global_batch_para"] / rows["n_gpu"]
    logged = rows["batch_in_log"].where(~rows["model"].isin(_GLOBAL_BATCH), rows["batch_in_log"] / rows["n_gpu"])
    batch = logged.fillna(divided).fillna(rows["batch_in_config"])
    items = rows["model"].map(lambda name: _LAMBDA[name][1])
    return collapsed(
        pd.DataFrame(
            {
                "graph": rows["model"].map(lambda name: _LAMBDA[name][0]),
                "network": rows["model"],
                "device": rows["gpu"],
                "n_gpus": rows["n_gpu"],
                "batch_size": batch,
                "precision": rows["precision"].str.lower().replace("fp16", "amp"),
                "version": rows["torch"].str.extract(r"^(\d+\.\d+)")[0].map(version_number),
                "optimizer": np.where(rows["model"].str.startswith(_ADAM), "adam", "momentum"),
                "host": rows["system"],
                "step_time_s": batch * rows["n_gpu"] * items / rows["throughput"],
            }
        ),
        "lambda_pytorch",
    )


def version_number(text: object) -> float:
    """``"1.13"`` -> 1.13, ``"1.4"`` -> 1.04, so that versions are in order."""
    major, _, minor = str(text).partition(".")
    return int(major) + int(minor) / 100 if major.isdigit() and minor.isdigit() else 0.0


_TENSORFLOW = {
    "alexnet": "torchvision:alexnet@224", "vgg16": "torchvision:vgg16@224", "resnet50": "torchvision:resnet50@224",
    "resnet152": "torchvision:resnet152@224", "inception3": "timm:inception_v3@299",
    "inception4": "timm:inception_v4@299",
}  # fmt: skip


def lambda_tensorflow(folder: Path) -> pd.DataFrame:
    """tf_cnn_benchmarks on many GPUs."""
    rows = pd.read_csv(folder / "runs.csv.gz")
    rows = rows[rows["model"].isin(list(_TENSORFLOW))]
    device = rows["gpu"].str.replace(r"\s*computeCapability.*", "", regex=True)
    return collapsed(
        pd.DataFrame(
            {
                "graph": rows["model"].map(_TENSORFLOW),
                "network": rows["model"],
                "mode": rows["mode"].replace({"training": "train", "inference": "infer"}),
                "device": device.where(~device.str.contains("Vega 20"), "Radeon VII"),
                "n_gpus": rows["n_gpu"],
                "batch_size": rows["batch_per_gpu"].astype(float),
                "precision": rows["precision"],
                "framework": "tensorflow",
                "version": rows["tf"].map(lambda number: float(str(number)[:3])),
                "compiled": rows["xla"],
                "host": rows["system"],
                "step_time_s": rows["batch_per_gpu"] * rows["n_gpu"] / rows["images_per_sec"],
            }
        ),
        "lambda_tensorflow",
    )


def pytorch_gpu_benchmark(folder: Path) -> pd.DataFrame:
    """Networks of torchvision in a batch of 12, without the optimizer's step."""
    rows = pd.read_csv(folder / "runs.csv")
    return collapsed(
        pd.DataFrame(
            {
                "graph": "torchvision:" + rows["model"] + "@224",
                "network": rows["model"],
                "mode": rows["mode"].replace({"inference": "infer"}),
                "device": rows["gpu"],
                "n_gpus": rows["n_gpu"],
                "batch_size": 12.0,
                "precision": rows["precision"].replace({"float": "fp32", "half": "fp16", "double": "fp64"}),
                "optimizer": "none",
                "step_time_s": rows["median_ms"] / 1e3,
            }
        ),
        "pytorch_gpu_benchmark",
    )


_SIA = {
    "bert": "own:bert_base@384", "cifar10": "own:resnet18_cifar@32", "imagenet": "torchvision:resnet50@224",
    "yolov3": "own:yolov3@416", "deepspeech2": "own:deepspeech2@600", "ncf": "own:ncf@1",
}  # fmt: skip
#: The GPU of the azure cluster is inferred from its memory and speed.
_CLUSTERS = {
    "aws": "T4",
    "rtx": "RTX 2080 Ti",
    "dgx": "A100-SXM4-40GB",
    "quad": "Quadro RTX 6000",
    "azure": "V100-SXM2-32GB",
}


def sia_pollux(folder: Path) -> pd.DataFrame:
    """Training steps over batch sizes and placements on several clusters."""
    return pd.concat([_sia_file(path) for path in sorted(folder.glob("*-placements-*.csv"))], ignore_index=True)


def _sia_file(path: Path) -> pd.DataFrame:
    app, _, cluster = path.stem.split("-")[:3]
    rows = pd.read_csv(path, dtype={"placement": str})
    if app not in _SIA:
        return pd.DataFrame()
    table = pd.DataFrame(
        {
            "graph": _SIA[app],
            "network": app,
            "device": _CLUSTERS.get(cluster, cluster),
            "n_gpus": rows["placement"].map(lambda digits: sum(map(int, digits))),
            "n_nodes": rows["placement"].str.len(),
            "batch_size": rows["local_bsz"].astype(float),
            "optimizer": "adam" if app in ("bert", "ncf") else "momentum",
            "host": cluster + "-" + rows["placement"],
            "step_time_s": rows["step_time"],
        }
    )
    return collapsed(table, "sia_pollux")


def neusight(folder: Path) -> pd.DataFrame:
    """Large transformers in fp32 on one GPU."""
    rows = pd.read_csv(folder / "e2e.csv")
    rows = rows[rows["option"].isna()]
    name = rows["model"].replace({"bert_large": "bert_large_lm"})
    return collapsed(
        pd.DataFrame(
            {
                "graph": "own:" + name + "@" + rows["seq_len"].astype(str),
                "network": rows["model"],
                "mode": rows["mode"].replace({"inf": "infer"}),
                "device": rows["gpu"],
                "batch_size": rows["batch"].astype(float),
                # NeuSight measures fp32 without TF32, the default of its PyTorch.
                "precision": "fp32-strict",
                "version": 2.01,
                "optimizer": "none",
                "step_time_s": rows["e2e_latency"] / 1e3,
            }
        ),
        "neusight",
    )


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "timm": timm,
    "lambda_pytorch": lambda_pytorch,
    "lambda_tensorflow": lambda_tensorflow,
    "pytorch_gpu_benchmark": pytorch_gpu_benchmark,
    "sia_pollux": sia_pollux,
    "neusight": neusight,
}


def tables(data: Path) -> dict[str, pd.DataFrame]:
    """Tables of a folder of public measurements, by project."""
    return {name: read(data / name) for name, read in READERS.items() if (data / name).is_dir()}
