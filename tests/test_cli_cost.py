"""`gpudemand cost` predicts a network in a file."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.cost.job import TrainingJob

pytest.importorskip("torch")
MODEL = """
from torch import nn

def build_model():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
"""


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return f"{path}:build_model"


def invoke(*arguments):
    return CliRunner().invoke(app, ["cost", *map(str, arguments)])


def test_the_table_has_time_memory_and_the_largest_batch(network):
    result = invoke(network, "--input", "3x64x64", "--batch", 64, "--device", "AMD EPYC", "--quiet")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "TrainingJob(Sequential on 3x64x64: batch 64, sgd, fp32, contiguous, eager, AMD EPYC (2 cores))"
    table = {line.split("  ")[0]: line for line in lines[2:]}
    assert {"step time", "memory", "fits into 23.5 GiB", "largest batch that fits"} <= set(table)
    assert " to " in table["step time"]
    assert int(table["fits into 23.5 GiB"].split()[-2]) >= 95


@pytest.mark.slow
def test_a_step_on_a_gpu_is_shown_in_a_training_script_too(network):
    about = (network, "--input", "3x64x64", "--device", "A100", "--quiet")
    assert "in a training script  " in invoke(*about).stdout
    assert "in a training script" not in invoke(*about, "--mode", "inference").stdout


def test_layout_checkpointing_and_inference_are_options(network):
    about = (network, "--input", "3x64x64", "--batch", 64, "--device", "AMD EPYC", "--quiet")
    trained = invoke(*about, "--layout", "channels_last", "--checkpointing")
    assert ", channels_last, eager, checkpointing, " in trained.stdout.splitlines()[0]
    served = invoke(*about, "--mode", "inference")
    assert ": batch 64, inference, fp32, contiguous" in served.stdout.splitlines()[0]
    both = invoke(*about, "--mode", "inference", "--checkpointing")
    assert both.exit_code == 2
    assert "inference saves no activations" in both.output


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"--device": "H2000"}, "Did you mean"),
        ({"--input": "3,64,64"}, "such as 3x224x224"),
        ({"--input": "1x64x64"}, "forward"),
        ({"--batch": "0"}, "--batch must be"),
        ({"--precision": "fp64"}, "precision"),
        ({"--model": "nowhere"}, "no model.json"),
    ],
)
def test_errors_are_one_line(network, change, reason):
    options = {"--input": "3x64x64", "--device": "AMD EPYC", "--quiet": None, **change}
    result = invoke(network, *(part for pair in options.items() for part in pair if part is not None))
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert reason in line


def test_a_large_model_by_name_and_layout():
    layout = ("--seq", 4096, "--gpus", 64, "--tensor", 8, "--zero", 1, "--lora", 16, "--micro-batch", 1, "--quiet")
    result = invoke("llama-3-8b", *layout)
    assert result.exit_code == 0, result.output
    first, *lines = result.stdout.splitlines()
    assert "llama-3-8b on 4096 tokens" in first
    assert "data=8, tensor=8, zero1" in first
    names = {line.split("  ")[0] for line in lines}
    assert {"step time", "tokens a second", "memory", "of it allocated", "of it reserved"} <= names
    stack = ("--cross-entropy", "fused_linear", "--kernels", "plain")
    assert "fused_linear loss, plain kernels" in invoke("llama-3-8b", *layout, *stack).stdout
    unknown = invoke("llama-3-8b", *layout[2:]).stdout
    assert "intervals are over all that is usual: --seq" in unknown
    assert "assumed: seq_len 4096, seen in" in unknown
    assert "samples a second" in unknown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("llama-3-9b", "--seq", 8), "Did you mean"),
        (("llama3",), "Did you mean llama-3-70b or llama-3-8b or"),
        (("llama-3-8b", "--seq", 8, "--zero", 4), "no level of ZeRO"),
        (("llama-3-8b", "--seq", 8, "--gpus", 64, "--tensor", 7), "is not --gpus 64"),
        (("hf:nowhere/config.json", "--seq", 8), "cannot be read"),
        (("llama-3-8b", "--seq", 8, "--bits", 4), "give --lora, too"),
        (("llama-3-8b", "--seq", 8, "--mode", "inference"), "serving is not predicted"),
        (("llama-3-8b", "--seq", 8, "--dtype", "int64", "--layout", "x"), "--layout, --dtype are for networks"),
        (("net.py:build", "--input", 8, "--lora", 4), "--lora is for large models"),
        (("net.py", "--input", 8), "of the form file.py:name"),
    ],
)
def test_errors_of_large_models_are_one_line(arguments, reason):
    result = invoke(*arguments, "--quiet")
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert reason in line


def test_json_has_what_the_table_has(network):
    found = json.loads(invoke(network, "--input", "3x64x64", "--device", "T4", "--json", "--quiet").stdout)
    assert found["step_time_s-lo-90"] <= found["step_time_s"] <= found["step_time_s-hi-90"]
    assert found["not_said"] == []
    assert found["max_batch_size"] > 0
    listed = json.loads(CliRunner().invoke(app, ["devices", "--json"]).stdout)
    assert {"name": "Tesla T4", "kind": "gpu"}.items() <= next(
        row for row in listed if row["name"] == "Tesla T4"
    ).items()


def test_what_was_not_said_of_a_large_model_is_said():
    arguments = ("llama-3-8b", "--seq", 4096, "--gpus", 8, "--sharding", "fsdp", "--quiet")
    lines = invoke(*arguments).stdout.splitlines()
    assert "any number at once" in lines[0]
    assert lines[1].endswith("--micro-batch, --global-batch, --checkpointing")
    assert any(line.endswith("8 samples at the pace of usual steps") for line in lines)
    stated = invoke(*arguments, "--micro-batch", 1, "--checkpointing").stdout
    assert "not said" not in stated
    assert "8 samples a step" in stated


def test_a_pipeline_with_a_micro_batch_alone_is_at_the_pace_of_usual_steps():
    arguments = ("llama-3-8b", "--seq", 4096, "--gpus", 8, "--pipeline", 4, "--micro-batch", 1, "--quiet")
    shown = invoke(*arguments, "--checkpointing").stdout
    assert "--global-batch" in shown
    assert "assumed: global batch" in shown
    assert "2 samples at the pace of usual steps" in shown


@pytest.mark.parametrize("name", ["num_attention_heads", "num_key_value_heads", "head_dim"])
def test_a_configuration_without_heads_is_refused(name):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, name: 0}
    with pytest.raises(InputError, match=f"{name} = 0"):
        TrainingJob.from_config(sizes, 128)
