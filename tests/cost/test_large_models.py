"""Large models: exact parameter counts, refused nonsense, memory and time by layout, and what is unknown."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError, UnlikelyCostWarning
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_candidates import assumptions, candidates
from gpudemand.cost.large_memory import (
    MEMORY_PRIORS,
    memory_bytes,
    memory_parts,
    memory_terms,
    needed_bytes,
    parameter_bytes,
)
from gpudemand.cost.large_models import LargeModelPredictor, RunClass
from gpudemand.cost.large_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.layouts import suggest_layouts, training_totals
from gpudemand.cost.model import CostModel
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.roofline import ring_seconds
from gpudemand.cost.transformer import Transformer
from gpudemand.cost.transformer_configs import published, published_architectures, read_configuration
from gpudemand.datasets.devices import device

SIZES = {
    "hidden_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "intermediate_size": 1408,
}
MLA = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "first_k_dense_replace": 1}
GROUPED = {"num_key_value_heads": 2, "num_kv_heads": 2, "head_dim": 64}
WIDE = {"intermediate_size": 2048}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
#: Configuration -> parameters of the model that transformers 4.57, or of the last ones 5.23, builds from it.
COUNTED = [
    ({"model_type": "llama", "num_key_value_heads": 2}, 9481728),
    ({"model_type": "llama", "attention_bias": True}, 10667520),
    ({"model_type": "llama", "tie_word_embeddings": True, "head_dim": 128}, 13295104),
    ({"model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}, 54910464),
    ({"model_type": "qwen2", "num_key_value_heads": 32}, 15393792),
    ({"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 128}, 11448576),
    ({"model_type": "gemma3_text", "num_key_value_heads": 2, "head_dim": 128}, 10939648),
    ({"model_type": "phi3", "num_key_value_heads": 8}, 10661376),
    ({"model_type": "cohere", "num_key_value_heads": 8}, 10147840),
    ({"model_type": "bert", "max_position_embeddings": 64, "type_vocab_size": 2}, 8300648),
    ({"model_type": "deepseek_v2", "n_shared_experts": 2, "q_lora_rank": None, **ROUTED, **MLA}, 12267200),
    ({"model_type": "deepseek_v3", "n_shared_experts": 1, "q_lora_rank": 96, **ROUTED, **MLA}, 11149280),
    ({"model_type": "llama", "mlp_bias": True}, 10671360),
    ({"model_type": "falcon", **WIDE, "bias": True, "parallel_attn": False, "multi_query": False}, 9970176),
    (
        {"model_type": "falcon", **WIDE, **GROUPED, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        8773632,
    ),
    ({"model_type": "stablelm", **GROUPED, "use_qkv_bias": True}, 9487616),
    ({"model_type": "stablelm", **GROUPED, "qk_layernorm": True, "use_parallel_residual": True}, 9484160),
    ({"model_type": "cohere", **GROUPED, "use_qk_norm": True}, 8970112),
    ({"model_type": "cohere2", **GROUPED}, 8968192),
    ({"model_type": "qwen3_moe", **GROUPED, **EXPERTS, "mlp_only_layers": [0]}, 8310656),
    (
        {"model_type": "qwen2_moe", **GROUPED, **EXPERTS, "shared_expert_intermediate_size": 256}
        | {"decoder_sparse_step": 2},
        9292032,
    ),
    ({"model_type": "gemma3_text"}, 16445440),
    ({"model_type": "olmo"}, 10657792),
    ({"model_type": "olmo3"}, 10664448),
    ({"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2}, 56093184),
]
LLAMA = published("llama-3-8b")


def run_of(model=LLAMA, seq_len=4096, **options):
    about = {"device": "H100", "precision": "bf16", "micro_batch": 1, "checkpointing": False, "optimizer": "adamw"}
    return TrainingJob(model, (seq_len,), **{**about, **options}).run


@pytest.mark.parametrize(
    ("config", "count"), COUNTED, ids=lambda value: str(value.get("model_type")) if isinstance(value, dict) else ""
)
def test_parameters_are_those_of_the_reference_implementation(config, count):
    assert read_configuration({**SIZES, **config}).n_parameters == count


def test_published_counts_are_exact():
    table = published_architectures()
    known = table["published_parameters"].dropna()
    assert len(known) > 90
    assert {name: published(name).n_parameters for name in known.index} == known.astype(int).to_dict()


@pytest.mark.parametrize(
    "name", ["meta-llama/Meta-Llama-3-8B-Instruct", "LLAMA3-8B", "hf:llama-3-8b", "llama_3_8b", "Meta Llama 3 8B"]
)
def test_spellings_of_a_name(name):
    assert published(name).n_parameters == 8030261248


def test_a_configuration_is_a_file_a_mapping_or_an_object(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**SIZES, "model_type": "llama"}))

    class Config:
        def to_dict(self):
            return {**SIZES, "model_type": "llama"}

    jobs = [TrainingJob.from_config(source, 128) for source in (str(path), path, tmp_path, Config(), SIZES)]
    assert len({job.model.n_parameters for job in jobs}) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parallel": Parallel(tensor=3), "n_gpus": 8}, "is not n_gpus=8"),
        ({"parallel": Parallel(data=4, tensor=4), "n_gpus": 8}, "is not n_gpus=8"),
        ({"parallel": Parallel(tensor=64), "n_gpus": 64}, "does not divide the 32 heads"),
        ({"parallel": Parallel(pipeline=64), "n_gpus": 64}, "fewer than the parts"),
        ({"parallel": Parallel(expert=8), "n_gpus": 8}, "no experts"),
        ({"parallel": {"tensor": 8}, "n_gpus": 8}, "must be a Parallel"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"micro_batch": 2, "accumulate": 3, "global_batch": 8}, "global_batch=8 is not"),
        ({"micro_batch": 3, "batch_size": 8}, "batch_size=8 is not"),
        ({"micro_batch": 0, "batch_size": 8}, "micro_batch"),
        ({"accumulate": 0.5}, "accumulate"),
        ({"checkpointing": "some"}, "'selective' or 'full'"),
        ({"offload": "disk"}, "activations, all, optimizer"),
        ({"optimizer": "adamv"}, "Did you mean"),
        ({"precision": "fp8", "device": "A100"}, "cannot train in 'fp8'"),
        ({"adapter": LoRA(8, ["qkv_proj"])}, "is no matrix of"),
        ({"adapter": LoRA(8, ["q_proj", "query"])}, "'query' is no matrix of"),
        ({"adapter": 16}, "must be a LoRA"),
        ({"mode": "inference"}, "trace the module"),
        ({"device": "AMD EPYC"}, "is a CPU"),
    ],
)
def test_nonsense_gets_one_sentence(options, reason):
    with pytest.raises(InputError, match=reason) as caught:
        TrainingJob.from_config("llama-3-8b", 4096, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Parallel(virtual_pipeline=2), "give pipeline"),
        (lambda: Parallel(pipeline=2, sharding="fsdp"), "'zero1' or 'none'"),
        (lambda: Parallel(sharding="zero4"), "Did you mean"),
        (lambda: LoRA(8, bits=2), "16, 8 or 4"),
        (lambda: LoRA(8, "everything"), "targets"),
        (lambda: LoRA(8, bits=4, quantizer="gguf"), "quantizer"),
        (lambda: published("llama-9-8b"), "Did you mean"),
        (lambda: read_configuration({"model_type": "rwkv", **SIZES}), "is no transformer"),
        (lambda: TrainingJob.from_config("t5-3b").run.tokens, "give seq_len"),
        (lambda: suggest_layouts(TrainingJob.from_config("llama-3-8b")), "give seq_len"),
        (lambda: training_totals(TrainingJob.from_config("llama-3-8b"), 1e9), "give seq_len"),
        (lambda: TrainingJob.from_config("llama-3-8b", (512, 128)), "has no encoder"),
        (lambda: TrainingJob.from_config("t5-3b", (512, 128, 64)), "source, target"),
        (lambda: read_configuration({"text_config": SIZES, "vision_config": SIZES}), "leave vision_config out"),
        (lambda: read_configuration({"text_config": SIZES, "audio_config": SIZES}), "the sound"),
        (lambda: read_configuration({"hidden_size": 8}), "lacks layers"),
        (lambda: read_configuration({**SIZES, **ROUTED, "first_k_dense_replace": 5}), "more than the 3 layers"),
        (lambda: read_configuration({**SIZES, "num_experts": 8}), "experts a token passes"),
        (lambda: read_configuration("nowhere.json"), "cannot be read"),
        (lambda: read_configuration(3), "mapping, a path"),
        (lambda: TrainingJob.from_config("gpt2", 8).graph, "no operator graph"),
    ],
)
def test_what_cannot_be_is_said(make, reason):
    with pytest.raises(InputError, match=reason):
        make()


def test_states_of_mixed_precision_take_the_published_bytes():
    """Rajbhandari et al., ZeRO, 2020: 16 bytes a parameter of mixed-precision Adam; a full model state is divided."""
    held = [2 + 2 + 12, 2 + 2 + 12 / 8, 2 + 2 / 8 + 12 / 8, (2 + 2 + 12) / 8]
    found = []
    for sharding in ("zero1", "zero1", "zero2", "zero3"):
        n_gpus = 8 if found else 1
        terms = memory_terms(run_of(n_gpus=n_gpus, parallel=Parallel(sharding=sharding)))
        found.append(sum(terms[name] for name in ("parameters", "gradients", "states")) / LLAMA.n_parameters)
    assert found == pytest.approx(held)


def test_megatron_adds_gradients_up_in_single_precision():
    assert sum(parameter_bytes(run_of(n_gpus=8, parallel=Parallel(tensor=8)))) == 18


def test_tuned_stacks_keep_weights_in_single_precision_whatever_the_states():
    assert parameter_bytes(run_of(optimizer="adamw_8bit")) == (2, 2, 2)
    assert parameter_bytes(run_of(optimizer="adamw_8bit", n_gpus=8, parallel=Parallel(tensor=8))) == (2, 4, 6)


@pytest.mark.parametrize(("sharding", "kept"), [("fsdp", 0.0), ("zero2", 0.0), ("none", 4.0)])
def test_sharded_gradients_wait_where_the_optimizer_does(sharding, kept):
    terms = memory_terms(run_of(n_gpus=8, parallel=Parallel(sharding=sharding), offload="optimizer"))
    assert terms["gradients"] == kept * LLAMA.n_parameters


def test_a_device_is_full_without_the_blocks_that_an_allocator_keeps():
    terms = pd.DataFrame([memory_terms(run_of())])
    weights = {name: mean for name, (mean, _) in MEMORY_PRIORS.items()}
    kept = memory_parts(terms, weights)["fragmentation"]
    assert needed_bytes(terms, weights) == pytest.approx(memory_bytes(terms, weights) - kept)
    # It keeps no more than there is.
    spare = memory_parts(terms.assign(capacity=2.0 * needed_bytes(terms, weights)), weights)["fragmentation"]
    full = memory_parts(terms.assign(capacity=1.01 * needed_bytes(terms, weights)), weights)["fragmentation"]
    assert spare > full == pytest.approx(0.01 * needed_bytes(terms, weights))


def test_saved_activations_follow_korthikanti_et_al():
    """34 bytes a token and unit of width plus 5 a head and position, without dropout's masks (three bytes) here."""
    gpt = Transformer(4096, 4, 32, 16384, 50257, gated=False)
    flash, eager = (memory_terms(run_of(model=gpt, seq_len=2048, attention=kind)) for kind in ("flash", "eager"))
    per_layer = flash["activations"] / 4 / 2048 / 4096
    assert 28 <= per_layer <= 34
    scores = (eager["activations"] - flash["activations"]) / 4 / 2048
    assert scores == pytest.approx(5 * 32 * 2048, rel=0.01)


def test_checkpointing_and_tensor_parallelism_save_activations():
    whole, some, least = (
        memory_terms(run_of(checkpointing=level))["activations"] for level in (False, "selective", "full")
    )
    split = memory_terms(run_of(n_gpus=8, parallel=Parallel(tensor=8)))["activations"]
    assert whole > some > least
    assert split == pytest.approx(whole / 8)


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages():
    options = {"n_gpus": 4, "parallel": Parallel(pipeline=4), "accumulate": 16}
    assert memory_terms(run_of(**options))["activations"] == pytest.approx(memory_terms(run_of())["activations"])


def test_adapters_train_little_and_quantised_weights_take_four_bits():
    adapter = LoRA(16, bits=4)
    terms, plain = memory_terms(run_of(adapter=adapter)), memory_terms(run_of(adapter=LoRA(16)))
    assert adapter.n_parameters(LLAMA) == 41943040
    assert terms["states"] == 8 * 41943040
    # Embedding and head are cast to single precision before training on quantised weights.
    ends = LLAMA.embedding_parameters + LLAMA.head_parameters
    assert plain["parameters"] - terms["parameters"] == 1.5 * (LLAMA.n_parameters - ends) - 2 * ends


def test_a_layer_launches_the_kernels_that_are_counted():
    pytest.importorskip("torch")
    counted = pytest.importorskip("benchmarks.cost.llm_kernels", reason="runs from a checkout")
    count = LLAMA.layers * np.array([1.0, 1.0])
    plain, adapted = np.array(counted.count_kernels(adapted=False)), np.array(counted.adapter_kernels()).round()
    launched = time_terms(run_of())["launch"], time_terms(run_of(adapter=LoRA(16)))["launch"]
    assert launched == pytest.approx((1e-5 * count @ plain, 1e-5 * count @ (plain + 7 * adapted)))
    fused = time_terms(run_of(n_gpus=8, parallel=Parallel(tensor=8)))["launch"]
    assert fused < 0.5 * launched[0]


def test_short_samples_take_as_long_as_their_kernels_are_launched():
    small, predictor = published("qwen-1.8b"), LargeModelPredictor.load()
    runs = [run_of(model=small, device=device("A100"), seq_len=size, adapter=LoRA(16)) for size in (64, 128, 8192)]
    short, twice, long = predictor.predict(runs)["step_time_s"]
    assert twice < 1.3 * short
    assert long > 3 * short


def test_quantised_weights_of_gptq_take_longer_to_use():
    """In kernels of their own speed: they say nothing about element-wise ones of activations."""
    one, many = (time_terms(run_of(adapter=LoRA(16, bits=4, quantizer=name))) for name in ("bitsandbytes", "gptq"))
    plain = time_terms(run_of(adapter=LoRA(16)))
    assert many["dequantise"] > 4 * one["dequantise"] > 0 == plain["dequantise"]
    assert one["elementwise"] == many["elementwise"] == plain["elementwise"]
    assert "gptq" in str(run_of(adapter=LoRA(16, bits=4, quantizer="gptq")))


def test_plain_stacks_attend_at_a_lower_share_of_the_peak_of_hopper():
    """FlashAttention-2 reaches 73 % of the peak of an A100 and 35 % of that of an H100."""
    layouts = (Parallel(sharding="fsdp"), Parallel(tensor=8, sharding="zero1"))
    runs = [run_of(device=device(name), n_gpus=8, parallel=one) for one in layouts for name in ("A100", "H100")]
    work = [time_terms(run)["attention"] * run.job.hardware.peak("bf16") for run in runs]
    assert work[1] / work[0] == pytest.approx(0.73 / 0.35)
    assert work[3] == pytest.approx(work[2])


def test_activations_in_the_host_leave_two_layers_and_cross_the_bus_twice():
    plain, swapped = run_of(micro_batch=4), run_of(micro_batch=4, offload="activations")
    held, left = (memory_terms(run)["activations"] for run in (plain, swapped))
    assert left == pytest.approx(held * 2 / LLAMA.layers)
    terms = time_terms(swapped)
    assert terms["swap"] == pytest.approx(2 * held / (device("H100").pcie_bandwidth / 2))
    assert time_terms(plain)["swap"] == 0
    table = LargeModelPredictor.load().predict([plain, swapped])
    assert table["step_time_s"].is_monotonic_increasing
    assert table["memory_gib"].is_monotonic_decreasing


def test_operations_are_six_a_parameter_and_token():
    terms = time_terms(run_of(model=published("gpt3-175b"), seq_len=2048, device=device("A100")))
    ideal = 6 * 174604259328 * 2048 / 312e12
    assert terms["products"] + terms["head"] == pytest.approx(ideal, rel=0.01)


def test_a_ring_moves_twice_the_data_of_an_all_gather():
    once, twice = (ring_seconds(device("H100"), 1e9, 8, passes=passes) for passes in (1.0, 2.0))
    assert twice == 2 * once
    assert once == pytest.approx(1e9 * 7 / 8 / 450e9, rel=0.05)
    assert ring_seconds(device("H100"), 1e9, 8, stride=8) > 5 * once
    assert ring_seconds(device("H100"), 1e9, 1) == 0.0


def test_what_is_unknown_is_marginalised_over_what_fits():
    open_run = run_of(n_gpus=64, micro_batch=None, checkpointing=None, global_batch=256)
    ways = candidates(open_run)
    assert sum(weight for weight, _ in ways) == pytest.approx(1.0)
    assert len(ways) > 3
    assert all(one.is_known and one.global_batch == 256 for _, one in ways)
    known = run_of()
    assert candidates(known) == [(1.0, known)]
    # A model that only fits when it is recomputed is.
    tight = run_of(model=published("llama-3-70b"), n_gpus=32, parallel=Parallel(sharding="fsdp"), checkpointing=None)
    assert {one.checkpointing for _, one in candidates(tight.with_batch(4, 1))} == {"full"}


def test_micro_batches_are_as_likely_as_they_are_fast():
    ways = candidates(run_of(model=published("qwen-1.8b"), seq_len=256, micro_batch=None, global_batch=32))
    odds = pd.Series([weight for weight, _ in ways]).groupby([one.micro_batch for _, one in ways]).sum()
    assert odds.is_monotonic_increasing
    assert odds[1] < 0.2 * odds[32]


def test_a_sharding_that_is_unknown_is_one_of_those_that_fit():
    half = run_of(model=published("llama-3-70b"), n_gpus=32, parallel=Parallel(sharding=None), optimizer="adamw_bf16")
    assert not half.is_known
    found = {one.layout.sharding for _, one in candidates(replace(half, checkpointing="full"))}
    assert found
    assert found <= {"zero3", "fsdp"}
    assert run_of(parallel=Parallel(sharding=None)).layout.sharding == "none"
    low, high = (memory_terms(half.laid_out(Parallel(sharding=kind)))["states"] for kind in ("fsdp", "none"))
    assert high == pytest.approx(32 * low)


def test_states_give_way_and_fused_stacks_recompute_all_only_where_memory_needs_it():
    layout = {"n_gpus": 8, "parallel": Parallel(sharding="fsdp"), "checkpointing": None, "optimizer": None}
    runs = [
        run_of(published(f"llama-3-{size}"), micro_batch=micro, **layout)
        for size, micro in (("8b", 1), ("8b", 4), ("70b", 1))
    ]
    found = [{(way.optimizer, way.checkpointing) for _, way in candidates(run)} for run in runs]
    assert found == [{("adamw", False), ("adamw", "full")}, {("adamw", "full")}, {("adamw_bf16", "full")}]
    fused = run_of(published("llama-3-8b"), kernels="fused", micro_batch=1, **layout)
    assert {way.checkpointing for _, way in candidates(fused)} == {False, "selective"}
    assert {way.checkpointing for _, way in candidates(fused.with_batch(8, 1))} == {"full"}


def test_logits_are_gone_when_a_layer_is_recomputed():
    """The peak is at the loss or in the last layer that is recomputed, not at both."""
    terms = pd.DataFrame([memory_terms(run_of(checkpointing="full", optimizer="sgd", accumulate=2))])
    weights = {name: mean for name, (mean, _) in MEMORY_PRIORS.items()}
    parts = memory_parts(terms, weights)
    saved = weights["activations"] * terms["activations"]
    assert (parts["logits"] > 0).all()
    assert parts["activations"] == pytest.approx(saved)
    parts = memory_parts(terms.assign(recomputed=10 * weights["logits"] * terms["logits"]), weights)
    assert (parts["logits"] == 0).all()
    assert (parts["activations"] > saved).all()


def test_samples_of_a_replica_are_taken_at_once_unless_they_are_accumulated():
    runs = [
        TrainingJob.from_config("llama-3-8b", 4096, batch_size=32, **options).run
        for options in ({}, {"micro_batch": 8}, {"accumulate": 2}, {"micro_batch": 4, "accumulate": 8})
    ]
    assert [(run.micro_batch, run.accumulate) for run in runs] == [(32, 1), (8, 4), (16, 2), (4, 8)]


def test_samples_that_no_layout_suits_are_said():
    with pytest.raises(InputError, match="no usual layout of n_gpus=64"):
        candidates(run_of(n_gpus=64, micro_batch=3, global_batch=100))


@pytest.fixture(scope="module")
def fitting():
    return pytest.importorskip("benchmarks.cost.fit_large", reason="runs from a checkout")


def test_fitting_recovers_coefficients_in_spite_of_outliers_and_sources(fitting):
    rng = np.random.default_rng(0)
    terms = pd.DataFrame({"a": rng.uniform(1, 10, 300), "b": rng.uniform(1, 10, 300)})
    source = np.array(["x", "y", "z"])[rng.integers(3, size=300)]
    y = (
        (2.0 * terms["a"] + 0.5 * terms["b"]).to_numpy()
        * np.exp(0.3 * (source == "x"))
        * np.exp(rng.normal(0, 0.05, 300))
    )
    y[:15] *= 10.0
    rows, weights = np.arange(300), np.ones(300)

    def formula(table, c):
        return c["a"] * np.asarray(table["a"]) + c["b"] * np.asarray(table["b"])

    found = fitting.fit_coefficients(formula, terms, weights, rows, y, source, {"a": (1.0, 1.0), "b": (1.0, 1.0)})
    assert found.coefficients["a"] / found.coefficients["b"] == pytest.approx(4.0, rel=0.15)
    assert found.effects["x"] - found.effects["y"] == pytest.approx(0.3, abs=0.1)


@pytest.fixture(scope="module")
def model():
    return CostModel.load()


def test_the_same_columns_as_of_traced_networks(model):
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8, parallel=Parallel(sharding="fsdp"))
    table = model.predict([job], level=[80, 90])
    assert list(table.columns) == [
        f"{target}{end}"
        for target in ("step_time_s", "memory_gib")
        for end in ("", "-lo-80", "-hi-80", "-lo-90", "-hi-90")
    ]
    assert (table["memory_gib-lo-90"] <= table["memory_gib-lo-80"]).all()
    assert (table["step_time_s-hi-90"] >= table["step_time_s-hi-80"]).all()


def test_predictions_move_as_physics_has_it(model):
    def costs(**options):
        about = {"device": "H100", "n_gpus": 64, "parallel": Parallel(sharding="fsdp"), "micro_batch": 1}
        job = TrainingJob.from_config(
            "llama-3-8b", 4096, **{"checkpointing": "full", "optimizer": "adamw", **about, **options}
        )
        return model.predict(job).iloc[0]

    base = costs()
    assert costs(micro_batch=2)["step_time_s"] > base["step_time_s"]
    assert costs(checkpointing=False)["step_time_s"] < base["step_time_s"]
    assert costs(checkpointing=False)["memory_gib"] > base["memory_gib"]
    assert costs(device="A100")["step_time_s"] > base["step_time_s"]
    assert costs(accumulate=4)["step_time_s"] > 3 * base["step_time_s"]
    assert costs(parallel=Parallel(sharding="zero1"))["memory_gib"] > base["memory_gib"]
    fewer = costs(parallel=Parallel(pipeline=8, sharding="zero1"), accumulate=8)["step_time_s"]
    assert costs(parallel=Parallel(pipeline=8, sharding="zero1"), accumulate=64)["step_time_s"] < 8 * fewer


def test_what_cannot_fit_does_not(model):
    alone = TrainingJob.from_config("llama-3-70b", 4096, device="H100", n_gpus=1, micro_batch=1, optimizer="adamw")
    shared = replace(alone, n_gpus=64, parallel=Parallel(tensor=8, pipeline=4, sharding="zero1"), checkpointing="full")
    assert model.fits(alone) == 0.0
    assert model.fits(shared) > 0.95
    assert model.max_batch_size(alone) == 0
    assert model.max_batch_size(shared) >= 1


def test_the_breakdown_prints_and_adds_up(model):
    job = TrainingJob.from_config(
        "llama-3-8b", 4096, device="H100", n_gpus=8, parallel=Parallel(sharding="zero3"), micro_batch=1
    )
    found = model.breakdown(job)
    assert found.parts["gib"].sum() == pytest.approx(found.device_gib)
    assert {"parameters", "gathered layers", "optimizer states"} <= set(found.parts["part"])
    assert "zero3" in repr(found)


def test_the_breakdown_names_what_it_fills_in(model):
    options = {"device": "H100", "n_gpus": 8, "micro_batch": 1, "optimizer": "adamw"}
    job = TrainingJob.from_config("llama-3-8b", 4096, parallel=Parallel(sharding="fsdp"), **options)
    found, stated = model.breakdown(job), model.breakdown(replace(job, checkpointing=False))
    assert found.title == f"{stated.title}; likeliest of 2 ways: checkpointing none"
    assert found.device_gib == stated.device_gib
    memory = model.predict([job, replace(job, checkpointing=False)])["memory_gib"]
    assert memory[0] < memory[1] == pytest.approx(stated.device_gib)
    assert "likeliest" not in model.breakdown(replace(job, checkpointing="full")).title
    assert "micro-batch" in model.breakdown(replace(job, micro_batch=None)).title.split("ways: ")[1]


def test_totals_follow_from_the_step():
    job = TrainingJob.from_config("llama-3-8b", 8192, device="H100", n_gpus=8, parallel=Parallel(sharding="fsdp"))
    totals = training_totals(job, 1e9, 2.0)
    assert totals["gpu_hours"] == pytest.approx(1e9 / totals["tokens_per_s"] * 8 / 3600)
    assert totals["cost"] == 2.0 * totals["gpu_hours"]
    assert totals["gpu_hours-lo-90"] < totals["gpu_hours"] < totals["gpu_hours-hi-90"]
    assert 0.1 < totals["mfu"] < 0.7


def test_a_pipeline_without_the_samples_of_a_step_takes_those_of_public_trainings():
    layout = Parallel(pipeline=16, virtual_pipeline=1, sharding="zero1")
    about = {"device": "H100", "n_gpus": 128, "parallel": layout, "checkpointing": "full"}
    open_batch = TrainingJob.from_config("llama-3-8b", 8192, **about)
    ways = candidates(open_batch.run)
    odds, tokens = np.array([weight for weight, _ in ways]), np.array([way.tokens for _, way in ways])
    assert set(tokens) == {2**19, 2**21, 2**23}  # doublings apart, about the 1.9 million that 128 GPUs take
    assert odds[tokens == 2**21].sum() == pytest.approx(2 / 3)
    assert any(line.startswith("global batch 256, at a weight of 67 %") for line in assumptions(open_batch.run))
    stated, found = (training_totals(job, 1e9) for job in (replace(open_batch, global_batch=256), open_batch))
    assert found["gpu_hours"] == pytest.approx(stated["gpu_hours"], rel=0.25)
    assert found["gpu_hours-hi-90"] / found["gpu_hours-lo-90"] > stated["gpu_hours-hi-90"] / stated["gpu_hours-lo-90"]


def test_a_micro_batch_alone_is_a_step_but_in_a_pipeline():
    about = {"device": "H100", "n_gpus": 16, "micro_batch": 2}
    flat, deep = (
        TrainingJob.from_config("llama-3-8b", 4096, parallel=one, **about).run
        for one in (Parallel(sharding="fsdp"), Parallel(pipeline=4, sharding="zero1"))
    )
    assert (flat.accumulate, flat.global_batch) == (1, 32)
    assert deep.has_open_batch
    assert not deep.is_known
    assert {way.micro_batch for _, way in candidates(deep)} == {2}
    assert min(way.accumulate for _, way in candidates(deep)) > 1
    often = TrainingJob.from_config("llama-3-8b", 4096, n_gpus=16, accumulate=8, parallel=Parallel(sharding="fsdp")).run
    assert {way.accumulate for _, way in candidates(often)} == {8}


def test_no_time_below_operations_over_peak(model):
    job = TrainingJob.from_config(
        "llama-3-8b", 4096, device="H100", n_gpus=8, parallel=Parallel(sharding="fsdp"), micro_batch=1
    )
    # Normalisations are no matrix products.
    ideal = 0.999 * 6 * (LLAMA.n_parameters - LLAMA.vocab * LLAMA.hidden) * 4096 / 989.4e12
    assert model.predict(replace(job, checkpointing=False), level=99.9)["step_time_s-lo-99.9"].iloc[0] >= ideal


def test_no_long_sample_is_faster_than_its_attention(model):
    sizes, options = {"hidden": 1024, "layers": 8, "heads": 8, "ffn": 2048, "vocab": 1000}, {"precision": "fp32"}
    job = TrainingJob.from_config(sizes, 65536, device="H100", micro_batch=1, checkpointing=False, **options)
    ideal = job.model.model_flops(65536) * 65536 / job.hardware.peak("fp32")
    assert model.predict(job, level=99.9)["step_time_s-lo-99.9"].iloc[0] >= 0.999 * ideal


@pytest.mark.parametrize(
    ("options", "share"), [({}, 5 / 6), ({"layer_types": ["sliding_attention", "full_attention"]}, 1 / 2)]
)
def test_windows_are_those_of_the_layers(options, share):
    config = {"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, **options}}
    found = read_configuration({**config, "text_config": {**config["text_config"], "model_type": "gemma3_text"}})
    assert (found.heads, found.vocab, found.window_share) == (8, 262208, pytest.approx(share))


def test_a_stored_predictor_is_read_back(tmp_path, model, fitting):
    path = tmp_path / "large_models.json"
    fitting.save_predictor(model.large_models, path)
    run = run_of(n_gpus=8, parallel=Parallel(sharding="fsdp"))
    pd.testing.assert_frame_equal(
        LargeModelPredictor.load(path).predict([run]), model.large_models.predict([run]), rtol=1e-4
    )
    path.write_text("{}")
    with pytest.raises(InputError, match="holds no predictor"):
        LargeModelPredictor.load(path)


@pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
@pytest.mark.slow
def test_a_traced_network_is_sharded_and_accumulated(model):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16)))

    def cost(**options):
        job = TrainingJob(net, (1024,), batch_size=64, optimizer="adam", device="A100", n_gpus=8, **options)
        return model.predict(job).iloc[0]

    base = cost()
    states = 16 * 1024 * 1025 * 4 * 2 / 2**30
    sharded = cost(parallel=Parallel(sharding="zero1"))
    # The optimizer's scratch space, as large as half of the states, is divided too.
    assert states * 7 / 8 < base["memory_gib"] - sharded["memory_gib"] < 2 * states * 7 / 8
    assert cost(parallel=Parallel(sharding="fsdp"))["memory_gib"] < sharded["memory_gib"]
    assert cost(accumulate=4)["step_time_s"] > base["step_time_s"]
    for options, reason in (
        ({"parallel": Parallel(tensor=8)}, "cannot|not split"),
        ({"adapter": LoRA(8)}, "from a configuration"),
        ({"checkpointing": "selective"}, "for jobs from a configuration"),
        ({"accumulate": 3}, "batch_size=64 is not"),
        ({"global_batch": 512}, "for jobs from a configuration"),
        ({"parallel": Parallel(sharding=None)}, "has to be known"),
    ):
        with pytest.raises(InputError, match=reason):
            cost(**options)


def test_measured_jobs_of_ones_own_calibrate_those_alike_the_most():
    model = CostModel.load()
    about = {"device": "H100", "n_gpus": 8, "parallel": Parallel(sharding="fsdp"), "checkpointing": "full"}
    own, near = (
        TrainingJob.from_config("llama-3-8b", 4096, micro_batch=size, optimizer="adamw", **about) for size in (1, 2)
    )
    far = replace(near, n_gpus=512, parallel=Parallel(tensor=8, pipeline=4, sharding="zero1"), micro_batch=16)
    before = model.predict([own, near, far])
    measured = 1.5 * before.iloc[0]
    after = model.calibrate(own, measured["step_time_s"], measured["memory_gib"]).predict([own, near, far])
    for target in ("step_time_s", "memory_gib"):
        moved = after[target] / before[target]
        assert (moved.diff().dropna() < 0).all()
        assert 1.0 < moved[2] < moved[0] < 1.5
        width = np.log(after[f"{target}-hi-90"] / after[f"{target}-lo-90"])
        assert (width < np.log(before[f"{target}-hi-90"] / before[f"{target}-lo-90"])).all()
    again = model.calibrate(own, [np.nan]).predict([own, near, far])
    pd.testing.assert_frame_equal(again, before)


def test_measured_runs_in_another_unit_are_said():
    model, job = CostModel.load(), TrainingJob.from_config("llama-3-8b", 4096, device="H100", micro_batch=1, n_gpus=8)
    before = model.predict(job).iloc[0]
    with pytest.warns(UnlikelyCostWarning, match="step_time_s of 1 job is over 100 times off .* must be in seconds"):
        model.calibrate(job, 1000 * before["step_time_s"])
    with pytest.warns(UnlikelyCostWarning, match="memory_gib of 1 job is over 100 times off .* must be in GiB"):
        model.calibrate(job, before["step_time_s"], 1024 * before["memory_gib"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.calibrate(job, 20 * before["step_time_s"], before["memory_gib"])


@pytest.mark.parametrize(
    ("seconds", "options", "reason"),
    [
        ([1.0, 2.0], {}, "2 values for 1 jobs"),
        (1.0, {"memory_gib": [1.0, 2.0]}, "memory_gib has 2 values"),
        (-1.0, {}, "step_time_s must be positive"),
        (1.0, {"memory_gib": 0.0}, "memory_gib must be positive"),
    ],
)
def test_measured_jobs_that_cannot_be(seconds, options, reason):
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100")
    with pytest.raises(InputError, match=reason):
        CostModel().calibrate(job, seconds, **options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "cannot be read as the configuration"),
        ('{"hidden_size": 1' + "0" * 18 + "}", "hidden_size must be a whole number"),
        ('{"vocab_size": 1' + "0" * 308 + "}", "vocab_size must be a whole number"),
        ('{"num_experts": 8, "mlp_only_layers": [[1]]}', "mlp_only_layers must be a list of numbers"),
    ],
)
def test_odd_configurations_are_one_sentence(tmp_path, text, message):
    usual = {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    usual |= {"vocab_size": 100, "num_experts_per_tok": 2}
    whole = text if text.startswith('{"a"') else json.dumps(usual | json.loads(text))
    (tmp_path / "config.json").write_text(whole)
    with pytest.raises(InputError, match=message):
        TrainingJob.from_config(f"hf:{tmp_path / 'config.json'}", 128, device="H100")


def test_a_configuration_without_an_end_is_not_read_whole():
    with pytest.raises(InputError, match="has more than 16 MiB"):
        TrainingJob.from_config("hf:/dev/zero", 128, device="H100")


@pytest.mark.parametrize("name", ["A100", "H100", "B200"])
def test_versions_of_flash_attention(name):
    """Version 3 is for Hopper and later; version 1 leaves multiprocessors idle where heads and samples are few."""
    kinds = ("flash-1", "flash-2", "flash-3", "flash")
    first, second, third, plain = (time_terms(run_of(device=device(name), attention=kind)) for kind in kinds)
    assert second["attention"] / third["attention"] == pytest.approx(1 if name == "A100" else 0.73 / 0.35)
    assert plain == second
    assert first["attention"] == second["attention"]
    assert first["attention, first"] > 0 == second["attention, first"] == third["attention, first"]
    many = time_terms(run_of(device=device(name), attention="flash-1", micro_batch=32))
    assert many["attention, first"] / many["attention"] < first["attention, first"] / first["attention"]


def test_fused_stacks_have_the_last_version_of_flash_attention():
    plain, fused = (run_of(kernels=kind).flash_version for kind in ("plain", "fused"))
    assert (plain, fused, run_of(attention="eager").flash_version) == (2, 3, 0)
    with pytest.raises(InputError, match="flash-3"):
        run_of(attention="flash-9")


def test_large_products_reach_less_of_the_peak_of_an_mi300x():
    ours, amd = (time_terms(run_of(device=device(name)))["products"] for name in ("H100", "MI300X"))
    # 794.5 and 668.4 TFLOP/s.
    assert amd / ours == pytest.approx(794.5 / 668.4, rel=0.01)


def test_stacks_since_2024_hide_what_tensor_parallelism_sends():
    layout = {"n_gpus": 8, "parallel": Parallel(tensor=8), "kernels": "fused"}
    terms = pd.DataFrame([time_terms(run_of(**layout, stack_year=year)) for year in (2023, 2024)])
    still = {name: mean for name, (mean, _) in TIME_PRIORS.items()} | {"year, fused": 1e-9}
    before, since = step_seconds(terms, still)
    assert since < before


def test_of_a_generation_that_few_projects_tell_of_the_next_may_err_more(fitting):
    kinds = [RunClass("dense", "NVIDIA", die) for die in ("seen", "rare") for _ in range(12)]
    error, sources = np.full(24, 0.2), [*range(12), *[12] * 12]
    scales = fitting.fit_scales(error * np.tile([1, 2], 12), np.zeros(24), kinds, np.array(sources), error)
    assert scales.generations["rare"] > scales.generations["seen"]
    other = RunClass("dense", "another", "never")
    assert scales.of([other])[0] == scales.classes["dense"] * max(scales.generations.values())


def test_a_length_that_is_unknown_is_weighed_and_widens_the_interval(model):
    about = {"device": "H100", "n_gpus": 8, "parallel": Parallel(sharding="fsdp"), "checkpointing": "full"}
    jobs = [
        TrainingJob.from_config("llama-3-8b", size, **about, micro_batch=1, optimizer="adamw")
        for size in (None, 2048, 8192)
    ]
    ways = candidates(jobs[0].run)
    assert sum(weight for weight, _ in ways) == pytest.approx(1.0)
    assert {way.seq_len for _, way in ways} >= {2048, 8192}
    table = model.predict(jobs)
    unknown, short, long = table["step_time_s"]
    assert short < unknown < long
    wide, narrow, _ = table["step_time_s-hi-90"] / table["step_time_s-lo-90"]
    assert wide > 2.0 * narrow
    # Learned positions are an end of the lengths.
    assert {way.seq_len for _, way in candidates(TrainingJob.from_config("gpt2", device="A100").run)} == {512, 1024}


def test_decomposed_weights_take_their_norms_and_save_what_magnitudes_need():
    """PEFT's comparison of methods on an L40S prints 2.1 GiB and a fourth of the time more than of plain adapters."""
    model = published("llama-3.2-3b")
    plain, dora = (
        run_of(model, seq_len=768, micro_batch=4, adapter=LoRA(32, "qv", dora=decomposed), device=device("L40S"))
        for decomposed in (False, True)
    )
    assert "dora=True" in str(dora)
    q, v = model.query_width, model.kv_width
    assert dora.job.adapter.n_parameters(model) - plain.job.adapter.n_parameters(model) == model.layers * (q + v)
    more = memory_terms(dora)["activations"] - memory_terms(plain)["activations"]
    assert more == pytest.approx(2 * 2 * (q + v) * model.layers * 4 * 768)
    weights = {name: mean for name, (mean, _) in TIME_PRIORS.items()}
    times = step_seconds(pd.DataFrame([time_terms(plain), time_terms(dora)]), weights)
    assert 1.05 < times[1] / times[0] < 1.4


def test_exponentials_take_longer_beside_products_in_narrow_heads_and_on_newer_matrix_units():
    def share(name, **options):
        terms = time_terms(run_of(device=device(name), **options))
        return terms["exponentials"] / terms["attention"]

    assert share("B200") > share("H100") > share("A100")
    # 312 TFLOP/s, 16 in each of 1,410 million clocks of 108 multiprocessors, 512 operations a score of heads of 128.
    assert share("A100") == pytest.approx(312e12 / (16 * 108 * 1.41e9) / 512, rel=0.01)
    assert share("A100", attention="eager") == 0.0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("seq_len", [40, 64, 65, 100, 200, 1000])
def test_windows_cost_what_tokens_attend_to(causal, chunked, seq_len):
    """Positions counted one by one; as without a window, half of a token's own position counts."""
    model = Transformer(64, 2, 2, 128, 100, window=64, chunked=chunked, causal=causal)
    away = np.subtract.outer(np.arange(seq_len), np.arange(seq_len))
    chunks = np.arange(seq_len) // 64
    inside = (chunks[:, None] == chunks) if chunked else (np.abs(away) <= (64 if causal else 32))
    counted = np.where(away == 0, 0.5, 1.0) * inside * (away >= 0 if causal else 1)
    assert model.attended(seq_len) == pytest.approx(counted.sum() / seq_len, abs=1.0)


def test_attention_is_continuous_where_samples_outgrow_the_window():
    for name in ("mistral-7b", "gemma-2-9b", "modernbert-base"):
        found = published(name)
        sizes = range(found.window // 2 - 2, 2 * found.window + 2)
        steps = np.diff([found.attended(size) for size in sizes])
        assert 0 <= steps.min() <= steps.max() <= 1.01


def test_windows_of_published_versions():
    names = ("Mistral-7B-v0.1", "Mistral-7B-Instruct-v0.2", "Mistral-7B-Instruct-v0.3", "phi-3-mini", "llama-4-scout")
    assert [published(name).window for name in names] == [4096, 0, 0, 2047, 8192]
    assert published("llama-4-scout").attended(16384) == 0.75 * 4096 + 0.25 * 8192


@pytest.mark.parametrize(("layout", "share"), [("none", 1), ("zero1", 1 / 8), ("fsdp", 1 / 8)])
def test_iterations_of_muon_are_work(layout, share):
    options = {"n_gpus": 8, "parallel": Parallel(sharding=layout)}
    muon, adamw = (time_terms(run_of(LLAMA, 4096, optimizer=name, **options)) for name in ("muon", "adamw"))
    # Of each layer: queries and output, keys and values, and three of the feed-forward part.
    sides = [(4096, 4096)] * 2 + [(1024, 4096)] * 2 + [(4096, 14336)] * 3
    flops = 32 * 5 * sum(4 * a**2 * b + 2 * a**3 for a, b in sides)
    assert muon["orthogonalise"] == pytest.approx(share * flops / device("H100").peak("bf16"))
    assert adamw["orthogonalise"] == 0
    tuned = time_terms(run_of(LLAMA, 4096, optimizer="muon", adapter=LoRA(16), **options))["orthogonalise"]
    assert 0 < tuned < muon["orthogonalise"] / 1000


def test_muon_takes_longer_than_adamw(model):
    about = {"device": "H100", "micro_batch": 1, "checkpointing": False}
    jobs = [TrainingJob.from_config("llama-3-8b", 4096, optimizer=name, **about) for name in ("muon", "adamw")]
    muon, adamw = model.predict(jobs)["step_time_s"]
    assert muon > adamw + 0.67
