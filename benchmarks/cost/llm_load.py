"""Rows of the table of large training runs as `TrainingRun`s."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob, TrainingRun
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.transformer import Transformer
from gpudemand.cost.transformer_configs import published, read_configuration
from gpudemand.datasets.devices import Device, device
from gpudemand.datasets.registry import bundled_path

_DEVICES = {
    **dict.fromkeys(("A100", "A100-80GB"), "A100 SXM4 80GB"),
    **dict.fromkeys(("V100", "V100-32GB"), "V100 SXM2 32GB"),
    "A100-40GB": "A100 SXM4 40GB",
    "A800-80GB": "A800 SXM4 80GB",
    "A6000 Ada-48GB": "RTX 6000 Ada",
    "V100-16GB": "V100 SXM2 16GB",
}
#: Vocabulary where the source gives none: that of GPT-2.
_VOCAB = 50257
#: Sources whose sequences are far shorter than the length that is printed: memory only.
_VARIABLE_LENGTH = ("modelscope/ms-swift",)
#: Sources that count tokens without those of padding.
_PADDED = ("PaddlePaddle/PaddleNLP",)
#: The longest batch of a page that prints no sequence length, from its own description.
_LONGEST = {"method_comparison/MetaMathQA": 768}
#: Others name AdamW, but not the precision of its states.
_OPTIMIZERS = {"adam 8-bit (bnb)": "adamw_8bit", "adamw 8-bit": "adamw_8bit"}
#: Heads of a width whose tables do not name them, from others of the same page.
_HEADS = {("bigscience-workshop/bigscience", 14400): 96}
#: Whose recipes keep weights and states too in the precision that they name.
_PURE_HALF = ("pytorch/torchtune",)
#: Whose recipes log memory as PyTorch allocates it.
_LOGS_ALLOCATED = ("pytorch/torchtune",)
#: Whose recipes compute the loss from chunks of logits in half precision.
_CHUNKED_LOSS = ("pytorch/torchtune",)
#: Before fused attention, and before sequence parallelism.
_BEFORE_FLASH = ("bigscience-workshop/bigscience",)
#: On Megatron's own code, which divides by tensor and pipeline and has the distributed optimizer.
_MEGATRON = (
    *("NVIDIA-NeMo/Megatron-Bridge", "NVIDIA/NeMo", "NVIDIA/NeMo-Framework-Launcher", "NVIDIA/dgxc-benchmarking"),
    "kwai/Megatron-Kwai",
)
#: What notes name of options that a `TrainingJob` does not have, or of samples shorter than stated.
_OTHER_OPTIONS = (
    *("activation offload as", "offload alpha", "optimizer step in backward", "+ 8-bit AdamW"),
    *("LoRA (emb)", "not packed"),
)
#: Columns that only one of the two tables has.
_FURTHER = (
    *("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn", "vocab", "n_parameters", "data_parallel", "optimizer"),
    "container_or_version",
)
#: Options of a job that its run takes as they are.
_OPTIONS = (
    *("device", "precision", "execution", "adapter", "offload", "attention"),
    *("cross_entropy", "kernels", "experts"),
)
_STATED = ("states", "lora_targets", "cross_entropy", "kernels", "experts")
#: Kernels as a source names them -> `TrainingJob.kernels`; Liger's and others replace single ones of a plain stack.
_KERNELS = {
    **dict.fromkeys(("megatron", "te", "fused"), "fused"),
    **dict.fromkeys(("plain", "liger", "foak"), "plain"),
}
#: Parts of the names of what is no plain transformer, or has sizes that are not known here.
_ODD = ("diffusion", "flux", "wan", "debug", "modded", "v4", "bert 4b", "deberta", "distil")
#: Machines that differ from the devices' usual ones: of Jean Zay, four links of 100 Gbit/s for four or eight GPUs.
_MACHINES = {
    ("bigscience-workshop/bigscience", "Volta"): {"node_gpus": 4, "network_gb_s": 12.5},
    ("bigscience-workshop/bigscience", "Ampere"): {"node_gpus": 8, "network_gb_s": 6.25},
}
#: Runs whose scripts keep checkpoints in the memory of the host.
_CHECKPOINTS_IN_HOST = "Megatron + Deepspeed ZeRO (old branch)"
#: Whose scripts ask for checkpointing and, to train all parameters, for DeepSpeed, where tables do not name them.
_DEEPSPEED = ("QwenLM/Qwen",)
#: Release of a source's software, or of its figures.
_YEARS = {
    **dict.fromkeys(("bigscience-workshop/bigscience",), 2022),
    **dict.fromkeys(("NVIDIA/NeMo-Framework-Launcher", "FlagOpen/FlagPerf"), 2023),
    **dict.fromkeys(("NVIDIA/NeMo", "NVIDIA/JAX-Toolbox", "NVIDIA/Megatron-LM", "ROCm/TransformerEngine"), 2024),
    **dict.fromkeys(("kwai/Megatron-Kwai", "alibaba/Pai-Megatron-Patch", "InternLM/InternEvo"), 2024),
    **dict.fromkeys(("NVIDIA/dgxc-benchmarking", "NVIDIA-NeMo/Automodel", "AI-Hypercomputer/gpu-recipes"), 2025),
    **dict.fromkeys(("yanring/Megatron-MoE-ModelZoo", "hpcaitech/ColossalAI"), 2025),
    **dict.fromkeys(("NVIDIA-BioNeMo/bionemo-recipes", "whitecircle/halo"), 2026),
}
#: Whose scripts do not interleave, or whose tables print where they do.
_NOT_INTERLEAVED = ("bigscience-workshop/bigscience", "NVIDIA-NeMo/Megatron-Bridge")
_NO_SEQUENCE_PARALLELISM = ("bigscience-workshop/bigscience", "NVIDIA/NeMo-Framework-Launcher", "whitecircle/halo")
#: Recipes whose experts are divided by tensor parallelism too, by notes to some of their rows.
_DIVIDED_EXPERTS = {("NVIDIA/dgxc-benchmarking", name) for name in ("grok-1", "llama-4-maverick")}
#: Encoder-decoders of a source and tokens of their targets, from its configurations.
_T5 = {"model_type": "t5", "is_gated_act": True, "d_kv": 64, "vocab_size": 29184}
_ENCODER_DECODERS = {
    "T5 220M": {**_T5, "d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 2048},
    "T5 3B": {**_T5, "d_model": 2048, "num_layers": 24, "num_heads": 32, "d_ff": 5120},
    "mT5 170M": {**_T5, "d_model": 512, "num_layers": 8, "num_heads": 6, "d_ff": 1024, "vocab_size": 250112},
    "mT5 390M": {**_T5, "d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 2048, "vocab_size": 250112},
    "mT5 3B": {**_T5, "d_model": 2048, "num_layers": 24, "num_heads": 32, "d_ff": 5120, "vocab_size": 250112},
}
_TARGET_TOKENS = {"NVIDIA/NeMo-Framework-Launcher": 128}


def read_runs(path: Path) -> pd.DataFrame:
    """Rows with ``run``, ``seconds_per_token`` of a GPU (NaN if unknown), ``memory_gib``, its ``reading``, ``class``.

    Rows without the sizes of a plain transformer are left out. `path` is ``llm_training.csv.gz``, its folder, or
    ``public_runs.csv``, whose columns these are, but for a few more.
    """
    return runs_of(pd.read_csv(path / "llm_training.csv.gz" if path.is_dir() else path, low_memory=False))


def _readable(table: pd.DataFrame, *, lengths: bool) -> pd.DataFrame:
    """Rows with a ``run``, those that state the length of a sample, or those that do not."""
    table = table.reindex(columns=table.columns.union([*_FURTHER, *_STATED], sort=False))
    runs = [_run(row) for row in table.to_dict("records")]
    wanted = [run is not None and (run.length is not None) == lengths for run in runs]
    return table.assign(run=runs)[wanted].reset_index(drop=True)


def read_without_lengths(train: Path) -> pd.DataFrame:
    """Rows of ``llm_training.csv.gz`` in a folder without the length of a sample, of projects that never state it.

    ``seconds`` of a GPU for a token, or where ``of`` says so for a sample. Rows whose samples are padded, or whose
    batch is not known, are left out.
    """
    table = pd.read_csv(train / "llm_training.csv.gz", low_memory=False)
    stated = set(_readable(table, lengths=True)["source"])
    rows = _readable(table, lengths=False)
    rows = rows[~rows["source"].isin([*stated, *_VARIABLE_LENGTH, *_PADDED]) & (rows["status"] == "ok")]
    each = (rows["n_gpus"] / rows["samples_per_s"]).where(rows["tokens_per_s_per_gpu"].isna())
    rows = rows.assign(
        seconds=(1.0 / rows["tokens_per_s_per_gpu"]).fillna(each), of=np.where(each.isna(), "token", "sample")
    )
    return rows[rows["seconds"].notna()].reset_index(drop=True)


def runs_of(table: pd.DataFrame) -> pd.DataFrame:
    """As `read_runs`, from the rows of a table."""
    known = _readable(table, lengths=True)
    known["seconds_per_token"] = _seconds(known)
    known["class"] = [_kind(row) for row in known.to_dict("records")]
    known["reading"] = list(map(_reading, known["source"], map(str, known["memory_kind"])))
    known = _medians(known)
    known["family"] = [re.sub(r"[^a-z]", "", str(name).lower())[:7] for name in known["model"]]
    known["generation"] = [run.job.hardware.die for run in known["run"]]
    known["vendor"] = [run.job.hardware.vendor for run in known["run"]]
    known["gpu"] = [run.job.hardware.name for run in known["run"]]
    return known


def read_all_runs(train: Path) -> pd.DataFrame:
    """Rows of ``llm_training.csv.gz`` in a folder and of the bundled public runs, as `read_runs` has them."""
    rows = pd.concat([read_runs(train), read_runs(bundled_path("cost/public_runs.csv"))], ignore_index=True)
    return rows.assign(layout=[_layout_kind(run) for run in rows["run"]])


def _layout_kind(run: TrainingRun) -> str:
    """How the model is divided, the widest division first."""
    if run.parallel is None:
        return "unknown"
    names = {"pipeline": "pipeline", "tensor": "tensor", "context": "context"}
    found = [name for name in names if getattr(run.parallel, name) > 1]
    if found:
        return " + ".join(found)
    return "sharded" if run.parallel.shards_parameters else "one GPU" if run.n_gpus == 1 else "data"


def _medians(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration and release of its software, whose repetitions count once."""
    keys = [rows["source"], rows["run"].map(_key), rows["status"], rows["kernels"], rows["container_or_version"]]
    for name in ("seconds_per_token", "memory_gib"):
        rows[name] = rows.groupby(keys, dropna=False)[name].transform("median")
    return rows[~pd.concat(keys, axis=1).duplicated()].reset_index(drop=True)


def _key(run: TrainingRun) -> str:
    own = [value for name, value in vars(run).items() if name not in ("job", "stacks")]
    return repr([*own, *(getattr(run.job, name) for name in _OPTIONS)])


def _seconds(rows: pd.DataFrame) -> Any:
    tokens = rows["seq_len"] * rows["global_batch"] / rows["n_gpus"]
    seconds = (1.0 / rows["tokens_per_s_per_gpu"]).fillna(rows["step_time_s"] / tokens)
    exact = rows["seq_len"].notna() & ~rows["source"].isin(_VARIABLE_LENGTH) & (rows["status"] == "ok")
    return seconds.where(exact)


def _reading(source: str, kind: str) -> str:
    """What a memory is, by its description; unless that or what the source logs says otherwise, of the device."""
    if source in _LOGS_ALLOCATED:
        return "allocated"
    words = {"allocated": "allocated", "active": "allocated", "reserved": "reserved", "torchtitan": "reserved"}
    return next((reading for word, reading in words.items() if word in kind), "device")


def _kind(row: dict[str, Any]) -> str:
    run: TrainingRun = row["run"]
    if run.job.adapter is not None:
        return "adapter"
    if run.model.routed_experts:
        return "experts, state space" if any(stack.mixer for stack in run.model.stacks) else "experts"
    return "dense, known" if run.is_known else "dense, part unknown"


def _model(row: dict[str, Any]) -> Transformer:
    name = str(row["model"]).removesuffix(" (encoder-decoder)")
    if fewer := re.fullmatch(r"(.*) \((\d+) layers\)", name):
        return replace(published(fewer[1]), layers=int(fewer[2]))
    if name in _ENCODER_DECODERS:
        return read_configuration({**_ENCODER_DECODERS[name], "name": name})
    try:
        return published(str(row["model"]))
    except InputError:
        pass
    number = {name: row[name] for name in ("n_layers", "hidden", "n_heads", "n_kv_heads", "ffn", "vocab")}
    sizes = {name: int(value) for name, value in number.items() if not np.isnan(value)}
    if not {"n_layers", "hidden"} <= set(sizes):
        sizes |= _sizes_of(row["n_parameters"], sizes)
    # Some published sweeps have heads that do not divide the width; the nearest that do.
    heads = sizes.pop("n_heads", _HEADS.get((row["source"], sizes["hidden"]), sizes["hidden"] // 128))
    heads = min((size for size in range(8, 257, 8) if sizes["hidden"] % size == 0), key=lambda size: abs(size - heads))
    gated = "llama" in str(row["model"]).lower()
    whole = {"model_type": "llama" if gated else "gpt2", "heads": heads, "vocab": _VOCAB, "ffn": 4 * sizes["hidden"]}
    return read_configuration({**whole, **sizes, "name": row["model"]})


def _sizes_of(n_parameters: float, sizes: dict[str, int]) -> dict[str, int]:
    """Depth and width of a decoder of a nominal size, 128 wide a layer as the GPT-3 series."""
    if np.isnan(n_parameters) or n_parameters < 1e9:
        raise InputError("no sizes")
    hidden = sizes.get("hidden") or int(round((128.0 * n_parameters / 12.0) ** (1 / 3) / 256) * 256)
    return {"hidden": hidden, "n_layers": max(round((n_parameters / hidden - _VOCAB) / 12.0 / hidden), 1)}


def _excluded(row: dict[str, Any]) -> bool:
    name = str(row["model"]).lower()
    if "fraction" in str(row["offload"]) and row["offload"][-4:] not in ("0.00", "1.00"):
        return True
    if any(part in str(row["note"]) for part in _OTHER_OPTIONS):
        return True
    # With states in the memory of the host beside checkpoints.
    if _CHECKPOINTS_IN_HOST in str(row["note"]) and isinstance(row["offload"], str):
        return True
    # Its configurations for one GPU page an 8-bit optimizer, and step in the backward pass.
    single = row["source"] in _PURE_HALF and row["n_gpus"] == 1 and row["method"] == "full-finetune"
    if single and "step:" not in str(row["note"]):
        return True
    # A device that its source throttled, or whose name it misprints.
    if any(part in row["gpu"] for part in ("power limited", "printed as")):
        return True
    return any(part in name for part in _ODD) or str(row["method"]).startswith("peft:") or row["optimizer"] == "galore"


def _run(row: dict[str, Any]) -> TrainingRun | None:
    seq = _whole(row["seq_len"]) or _longest(row) or None
    if _excluded(row) or "aqlm" in str(row["quantization"]):
        return None
    for unknown in ({}, {"grad_accum": None}, {"grad_accum": None, "micro_batch": None}):
        try:  # some tables print batches that do not multiply to the batch of a step
            return _described({**row, **unknown}, seq)
        except InputError:
            continue
    return None


def _longest(row: dict[str, Any]) -> int:
    """Tokens of the longest batch; 0 if unknown."""
    return next((size for page, size in _LONGEST.items() if str(row["source_path"]).startswith(page)), 0)


def _device(text: str) -> Device:
    """The device that a source names, with the memory and the power limit that it prints."""
    name = re.sub(r" \(.*\)", "", text)
    found = device(_DEVICES.get(name) or re.sub(r"-\d+GB$", "", name))
    memory, power = re.search(r"-(\d+)GB$", name), re.search(r"\((\d+) W\)", text)
    found = found.limited_to(float(power[1])) if power else found
    more = memory and float(memory[1]) > 1.1 * found.memory_gib
    return replace(found, memory_gib=float(memory[1]), usable_gib=math.nan) if memory and more else found


def _described(row: dict[str, Any], seq_len: int | None) -> TrainingRun:
    hardware = _device(str(row["gpu"]))
    hardware = replace(hardware, **_MACHINES.get((row["source"], hardware.architecture), {}))
    half = "bf16" if "bf16" in hardware.precisions else "fp16"
    precision = {"mxfp8": "fp8", "nvfp4": "fp4"}.get(row["precision"], row["precision"])
    model = _model(row)
    shape: tuple[int, ...] | None = None if seq_len is None else (seq_len,)
    if seq_len is not None and model.source_share:
        shape = (seq_len, _TARGET_TOKENS.get(row["source"], seq_len))
    default = "full" if row["source"] in _DEEPSPEED else None
    levels: dict[str, Any] = {"none": False, "selective": "selective", "full": "full"}
    eager = half == "fp16" or row["source"] in _BEFORE_FLASH or row["attention"] == "eager"
    flash = row["attention"] if str(row["attention"]).startswith("flash-") else "flash"
    job = TrainingJob(
        model,
        shape,
        device=hardware,
        n_gpus=int(row["n_gpus"]),
        parallel=_layout(row),
        micro_batch=_whole(row["micro_batch"]),
        accumulate=_whole(row["grad_accum"]),
        global_batch=_whole(row["global_batch"]),
        precision=precision if isinstance(precision, str) else half,
        optimizer=_optimizer(row),
        checkpointing=levels.get(row["activation_checkpointing"], default),
        adapter=_adapter(row),
        offload=_offload(row),
        attention="eager" if eager else flash,
        execution="compiled" if row["compile"] == "yes" else "eager",
        cross_entropy=_cross_entropy(row),
        kernels="fused" if row["source"] in _MEGATRON else _KERNELS.get(row["kernels"]),
        experts=row["experts"] if isinstance(row["experts"], str) else None,
        stack_year=_stack_year(row),
    )
    assert job.run is not None
    return job.run


def _stack_year(row: dict[str, Any]) -> float | None:
    """Year of a release that is printed as 25.09, or that is known of the source."""
    release = re.search(r"(2\d)\.(\d\d)", str(row["container_or_version"]))
    if release and "NeMo" in str(row["container_or_version"]):
        return 2000.0 + int(release[1]) + (int(release[2]) - 1.0) / 12.0
    return _YEARS.get(row["source"])


def _cross_entropy(row: dict[str, Any]) -> str | None:
    """Loss that is stated, or a project's recipes have: torchtune's chunks, but for steps of a table without them."""
    if isinstance(row.get("cross_entropy"), str):
        return row["cross_entropy"]
    steps = ("step: Baseline", "step: + packed", "step: + compile")
    chunked = row["source"] in _CHUNKED_LOSS and not any(step in str(row["note"]) for step in steps)
    return "fused" if chunked else None


def _optimizer(row: dict[str, Any]) -> str | None:
    if isinstance(row["states"], str):
        return row["states"]
    pure = row["source"] in _PURE_HALF and row["precision"] == "bf16" and row["optimizer"] != row["optimizer"]
    if row["method"] == "full-finetune" and (pure or row["source"] in _DEEPSPEED):
        return "adamw_bf16" if pure else "adamw"
    return _OPTIMIZERS.get(row["optimizer"])


def _layout(row: dict[str, Any]) -> Parallel | None:
    degrees: dict[str, Any] = {name: _whole(row[f"{name}_parallel"]) or 1 for name in ("tensor", "pipeline", "context")}
    degrees["expert"] = _whole(row["expert_parallel"])
    divided = (row["source"], re.sub(r" \(.*\)", "", str(row["model"]))) in _DIVIDED_EXPERTS
    # Other recipes that spread experts over GPUs leave their matrices whole.
    degrees["expert_tensor"] = 1 if (degrees["expert"] or 1) > 1 and not divided else None
    degrees["virtual_pipeline"] = _whole(row["virtual_pipeline"]) or (1 if row["source"] in _NOT_INTERLEAVED else None)
    sharding = row["sharding"] if isinstance(row["sharding"], str) else None
    if row["source"] in _DEEPSPEED and row["method"] == "full-finetune":
        sharding = "zero2"
    stated = row["tensor_parallel"] == row["tensor_parallel"]
    # Some stacks count embedding and loss among the layers of a pipeline.
    if degrees["virtual_pipeline"]:
        most = max(_model(row).depth // degrees["pipeline"], 1) if degrees["pipeline"] > 1 else 1
        degrees["virtual_pipeline"] = min(degrees["virtual_pipeline"], most)
    if not stated and (sharding is None or row["source"] in _MEGATRON):
        return None if row["n_gpus"] > 1 else Parallel(1)
    if sharding is None and (degrees["tensor"] * degrees["pipeline"] > 1 or row["source"] in _MEGATRON):
        # Stacks with tensor parallelism divide the optimizer states as a rule.
        sharding = "zero1"
    if sharding in ("fsdp", "zero3") and degrees["pipeline"] > 1:
        sharding = "zero1"
    sequence = row["source"] not in _NO_SEQUENCE_PARALLELISM
    return Parallel(None, sharding=sharding, sequence=sequence, **degrees)


def _adapter(row: dict[str, Any]) -> LoRA | None:
    if row["method"] not in ("lora", "qlora"):
        return None
    bits = 8 if "int8" in str(row["quantization"]) else 4
    rank = _whole(row["lora_rank"]) or 16
    quantizer = "gptq" if "gptq" in str(row["quantization"]) else "bitsandbytes"
    dora = "-dora" in str(row["note"])
    return LoRA(rank, _targets(row), bits if row["method"] == "qlora" else 16, quantizer, dora)


def _targets(row: dict[str, Any]) -> str:
    """Matrices with adapters: of experiments of PEFT its default for Llama, where they do not name others."""
    if isinstance(row["lora_targets"], str):
        return row["lora_targets"]
    if row["source"] != "huggingface/peft":
        return "all-linear"
    return "mlp" if "target-mlp" in str(row["note"]) else "qv"


def _offload(row: dict[str, Any]) -> str | None:
    text = row["offload"]
    if not isinstance(text, str) or text == "none" or text.endswith("0.00"):
        return "activations" if _CHECKPOINTS_IN_HOST in str(row["note"]) else None
    if text.startswith("activation"):
        return "activations"
    if text.startswith("cpu offload"):
        return "all"
    return "all" if "full" in text or "+" in text else "parameters" if "parameters" in text else "optimizer"


def _whole(value: Any) -> int | None:
    return int(value) if value == value and value is not None and value >= 1 else None
