"""Large models: what a loss and selective checkpointing hold, and what different readings of memory count."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_memory import MEMORY_PRIORS, READINGS, memory_parts, memory_terms, parameter_bytes
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.cost.large_time import time_terms
from gpudemand.cost.model import CostModel
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.transformer_configs import published, read_configuration
from gpudemand.datasets.devices import device

LLAMA, FSDP, MEGATRON = published("llama-3-8b"), Parallel(sharding="fsdp"), Parallel(tensor=8, sharding="zero1")
MEANS = {name: mean for name, (mean, _) in MEMORY_PRIORS.items()}


@pytest.fixture(scope="module")
def predictor():
    return LargeModelPredictor.load()


def run_of(model=LLAMA, seq_len=8192, **options):
    about = {"device": device("H100"), "precision": "bf16", "optimizer": "adamw", "n_gpus": 8, "parallel": FSDP}
    return TrainingJob(model, (seq_len,), **{**about, "micro_batch": 1, "checkpointing": "full", **options}).run


def logits_of(run):
    # Without checkpointing: logits are gone when a layer is recomputed that is larger.
    terms = pd.DataFrame([memory_terms(replace(run, checkpointing=False))])
    return float(memory_parts(terms, MEANS)["logits"][0]) / run.tokens_at_once


def test_a_loss_holds_logits_with_copies_once_or_in_chunks():
    found = [logits_of(run_of(cross_entropy=name)) for name in ("plain", "fused", "fused_linear")]
    assert found == pytest.approx([12 * LLAMA.vocab, 4 * LLAMA.vocab, 12 * LLAMA.hidden])


def test_a_loss_of_which_nothing_is_said_is_that_of_its_stack():
    assert logits_of(run_of()) == logits_of(run_of(cross_entropy="plain"))
    # torchtune's compiled step takes 51.0 GiB before its loss is chunked, and 42.9 GiB after.
    assert logits_of(run_of(execution="compiled")) == logits_of(run_of())
    assert logits_of(run_of(parallel=MEGATRON)) == logits_of(run_of(parallel=MEGATRON, cross_entropy="fused"))


def test_a_fused_loss_takes_no_longer_and_less_memory(predictor):
    table = predictor.predict([run_of(cross_entropy=name) for name in (None, "plain", "fused", "fused_linear")])
    assert table["memory_gib"][0] == table["memory_gib"][1]
    assert table["memory_gib"][1:].is_monotonic_decreasing
    assert table["step_time_s"].is_monotonic_decreasing
    assert table["step_time_s"][3] > 0.95 * table["step_time_s"][0]


def test_an_unknown_loss_and_one_of_a_traced_network_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="cross_entropy"):
        run_of(cross_entropy="liger")
    with pytest.raises(InputError, match="cross_entropy is for jobs from a configuration"):
        TrainingJob(torch.nn.Linear(2, 2), (2,), cross_entropy="fused")


def test_a_job_says_its_loss(predictor):
    options = {"device": "H100", "n_gpus": 8, "parallel": FSDP, "micro_batch": 4, "checkpointing": True}
    plain, fused = (
        TrainingJob.from_config("llama-3-8b", 8192, cross_entropy=name, **options) for name in (None, "fused_linear")
    )
    assert "fused_linear loss" in repr(fused)
    assert "loss" not in repr(plain)
    held = predictor.predict([plain.run, fused.run])["memory_gib"]
    assert held[0] > 1.5 * held[1]


def test_selective_checkpointing_of_pytorch_keeps_every_second_product():
    """Per token of a layer: its input, attention, and half of q, k, v, o, gate, up and down, two bytes each."""
    kept = 2 * (4096 + 4096 + (4096 + 1024 + 1024 + 4096 + 3 * 14336 - 14336 + 4096) / 2)
    terms = memory_terms(run_of(checkpointing="selective"))
    assert terms["activations"] == pytest.approx(kept * 32 * 8192)
    megatron = memory_terms(run_of(checkpointing="selective", parallel=MEGATRON))
    assert megatron["activations"] * 8 > 1.3 * terms["activations"]


def test_memory_of_torchtitan_is_that_of_its_parts(predictor):
    """Llama 3.1 8B on 8 H100, torchtitan's page of December 2024: 77.0 GiB selective, 83.9 at 32,768 tokens, full."""
    runs = [
        run_of(micro_batch=2, checkpointing="selective", execution="compiled"),
        run_of(seq_len=32768, checkpointing="full", execution="compiled", precision="fp8"),
    ]
    held = predictor.predict(runs, reading="reserved")["memory_gib"]
    assert held.tolist() == pytest.approx([77.0, 83.9], rel=0.1)


def test_eight_bits_make_no_tuned_stack_of_pytorchs_sharding():
    half, eight = (run_of(precision=name, accumulate=1) for name in ("bf16", "fp8"))
    assert memory_terms(half) == memory_terms(eight)
    assert time_terms(half)["launch"] == time_terms(eight)["launch"]
    assert parameter_bytes(eight) == (4, 4, 8)
    alone = run_of(precision="fp8", parallel=Parallel(sharding="zero1"))
    assert alone.is_tuned
    assert not run_of(parallel=Parallel(tensor=8, sharding="fsdp")).is_tuned


def test_kernels_are_fused_where_the_layout_is_of_such_stacks_unless_it_is_said(predictor):
    sharded, split = run_of(), run_of(parallel=MEGATRON)
    assert (sharded.is_tuned, split.is_tuned) == (False, True)
    assert memory_terms(run_of(parallel=MEGATRON, kernels="fused")) == memory_terms(split)
    assert memory_terms(run_of(kernels="plain")) == memory_terms(sharded)
    options = {"parallel": MEGATRON, "checkpointing": False}
    table = predictor.predict([run_of(kernels=name, **options) for name in ("fused", "plain")])
    assert table["step_time_s"].is_monotonic_increasing
    assert table["memory_gib"].is_monotonic_increasing
    assert "plain kernels" in str(run_of(parallel=MEGATRON, kernels="plain"))
    with pytest.raises(InputError, match="kernels"):
        run_of(kernels="triton")


def test_tensor_parallelism_on_plain_kernels_takes_what_nanotron_printed(predictor):
    """A llama of 1.1 billion parameters on 8 H100, 4 replicas of 2 GPUs, 8 samples at once: 44,378 MiB reserved."""
    sizes = {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "intermediate_size": 4096}
    llama = read_configuration({"model_type": "llama", **sizes, "vocab_size": 50257, "tie_word_embeddings": True})
    layout, options = Parallel(tensor=2, sharding="zero1"), {"micro_batch": 8, "accumulate": 32, "checkpointing": False}
    runs = [run_of(model=llama, seq_len=4096, parallel=layout, kernels=name, **options) for name in ("plain", "fused")]
    plain, fused = predictor.predict(runs, reading="reserved")["memory_gib"]
    assert plain == pytest.approx(44378 / 1024, rel=0.2)
    assert fused < 0.85 * plain


def test_readings_of_memory_differ_by_allocator_and_context(predictor):
    run, job = run_of(), TrainingJob.from_config("llama-3-8b", 8192, device="H100", n_gpus=8, parallel=FSDP,
                                                 micro_batch=1, checkpointing=True, optimizer="adamw")  # fmt: skip
    found = [float(predictor.predict([run], reading=name)["memory_gib"].iloc[0]) for name in READINGS]
    whole = CostModel.load().breakdown(job)
    assert found == pytest.approx([whole.allocated_gib, whole.reserved_gib, whole.device_gib])
    assert found == sorted(found)
    assert float(predictor.predict([run])["memory_gib"].iloc[0]) == found[-1]
    with pytest.raises(InputError, match="reading"):
        predictor.predict([run], reading="nvidia")


def test_memory_of_an_open_micro_batch_ends_at_the_device(predictor):
    still, free = (run_of(global_batch=512, micro_batch=size) for size in (8, None))
    most = device("H100").memory_gib
    assert predictor.predict([still])["memory_gib-hi-90"][0] > most
    assert predictor.predict([free])["memory_gib-hi-90"][0] == pytest.approx(most)
    # What does not fit with one sample at once either is not said to.
    huge = replace(free, model=published("llama-3-405b"), checkpointing="full")
    table = predictor.predict([huge])
    assert table["memory_gib-hi-90"][0] >= table["memory_gib"][0] > most


def test_projects_read_memory_and_compute_losses_in_their_own_ways():
    load = pytest.importorskip("benchmarks.cost.llm_load", reason="runs from a checkout")
    kinds = ("peak active GiB", "peak reserved GiB", "nvidia-smi style, GB as printed", "nan")
    assert [load._reading("", kind) for kind in kinds] == ["allocated", "reserved", "device", "device"]
    assert load._reading("pytorch/torchtune", "peak per GPU, GiB as printed") == "allocated"
    steps = ("step: + compile; packed", "step: + chunked cross entropy; packed", "packed sequences")
    rows = [{"source": source, "note": step} for source in ("pytorch/torchtune", "QwenLM/Qwen") for step in steps]
    assert [load._cross_entropy(row) for row in rows] == [None, "fused", "fused", None, None, None]
