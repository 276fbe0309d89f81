"""Transformers of more than one stack: parameters as transformers counts them, and the work of each stack."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from gpudemand._tables import keyed_rows
from gpudemand._validation import InputError
from gpudemand.cost import transformer_families
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_memory import memory_terms
from gpudemand.cost.large_time import time_terms
from gpudemand.cost.model import CostModel
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.transformer import Transformer
from gpudemand.cost.transformer_configs import published, read_configuration
from gpudemand.datasets.devices import device

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "intermediate_size": 160,
}
IMAGE = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "image_size": 56,
    "patch_size": 14,
}
MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 2,
    "mamba_expand": 2,
    "mamba_d_conv": 4,
}
BART = {
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 160,
    "vocab_size": 1000,
}
DEBERTA2 = {
    **SIZES,
    "model_type": "deberta-v2",
    "relative_attention": True,
    "pos_att_type": "p2c|c2p",
    "type_vocab_size": 0,
    "position_biased_input": False,
    "max_position_embeddings": 64,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
IDEFICS = {
    "text_config": {**SIZES, "model_type": "llama", "pad_token_id": 0},
    "vision_config": {**IMAGE},
    "pad_token_id": 0,
}
#: Configuration -> parameters of the model that transformers 4.57 builds from it.
COUNTED = [
    (
        {
            "model_type": "t5",
            "d_model": 64,
            "d_kv": 24,
            "d_ff": 160,
            "num_layers": 3,
            "num_decoder_layers": 2,
            "num_heads": 4,
            "vocab_size": 1000,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        454784,
    ),
    (
        {
            "model_type": "mt5",
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 160,
            "num_layers": 3,
            "num_heads": 6,
            "vocab_size": 1000,
        },
        534976,
    ),
    (
        {
            "model_type": "umt5",
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 160,
            "num_layers": 3,
            "num_heads": 4,
            "vocab_size": 1000,
        },
        397632,
    ),
    ({**BART, "model_type": "bart", "max_position_embeddings": 128}, 277664),
    ({**BART, "model_type": "pegasus", "max_position_embeddings": 128}, 277408),
    (
        {
            "model_type": "whisper",
            **BART,
            "num_mel_bins": 128,
            "max_source_positions": 100,
            "max_target_positions": 50,
            "pad_token_id": 0,
        },
        307168,
    ),
    ({**IMAGE, "model_type": "vit", "num_labels": 10}, 67642),
    (
        {
            "model_type": "dinov2",
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 56,
            "patch_size": 14,
            "use_swiglu_ffn": True,
        },
        86338,
    ),
    (
        {
            "model_type": "clip",
            "text_config": {**SIZES, "max_position_embeddings": 77},
            "vision_config": {**IMAGE},
            "projection_dim": 32,
        },
        252641,
    ),
    (
        {
            "model_type": "siglip",
            "text_config": {
                "hidden_size": 48,
                "intermediate_size": 160,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "vocab_size": 1000,
                "max_position_embeddings": 64,
            },
            "vision_config": {**IMAGE},
        },
        214994,
    ),
    (
        {
            "model_type": "llava",
            "text_config": {**SIZES, "model_type": "llama"},
            "vision_config": {**IMAGE, "model_type": "clip_vision_model"},
        },
        344256,
    ),
    (
        {
            "model_type": "llava_next",
            "text_config": {**SIZES, "model_type": "mistral", "num_key_value_heads": 2},
            "vision_config": {**IMAGE, "model_type": "clip_vision_model"},
        },
        332032,
    ),
    (
        {
            "model_type": "llava_onevision",
            "text_config": {**SIZES, "num_key_value_heads": 2, "model_type": "qwen2"},
            "vision_config": {**IMAGE, "model_type": "siglip_vision_model", "vision_use_head": False},
        },
        332272,
    ),
    (
        {
            "model_type": "paligemma",
            "text_config": {**SIZES, "model_type": "gemma2", "head_dim": 16, "num_key_value_heads": 2},
            "vision_config": {**IMAGE, "model_type": "siglip_vision_model"},
            "projection_dim": 64,
        },
        282960,
    ),
    (
        {
            "model_type": "gemma3",
            "text_config": {**SIZES, "head_dim": 16, "num_key_value_heads": 2},
            "vision_config": {**IMAGE, "vision_use_head": False},
            "mm_tokens_per_image": 4,
        },
        264128,
    ),
    (
        {
            "model_type": "qwen2_vl",
            "text_config": {**SIZES, "num_key_value_heads": 2},
            "vision_config": {"embed_dim": 48, "depth": 2, "num_heads": 4, "hidden_size": 64, "mlp_ratio": 4},
        },
        420352,
    ),
    (
        {
            "model_type": "qwen2_5_vl",
            "text_config": {**SIZES, "num_key_value_heads": 2},
            "vision_config": {
                "hidden_size": 48,
                "depth": 2,
                "num_heads": 4,
                "intermediate_size": 100,
                "out_hidden_size": 64,
            },
        },
        412064,
    ),
    ({**IDEFICS, "model_type": "idefics3"}, 349104),
    ({**IDEFICS, "model_type": "smolvlm"}, 349104),
    (
        {
            "model_type": "llama4",
            "text_config": {
                **SIZES,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "intermediate_size_mlp": 200,
                "num_local_experts": 4,
                "interleave_moe_layer_step": 2,
                "pad_token_id": 0,
            },
            "vision_config": {**IMAGE, "vision_output_dim": 40, "projector_input_dim": 40, "projector_output_dim": 40},
        },
        471168,
    ),
    (
        {
            "model_type": "mistral3",
            "text_config": {**SIZES, "model_type": "mistral", "num_key_value_heads": 2, "head_dim": 16},
            "vision_config": {**IMAGE, "model_type": "pixtral", "head_dim": 12},
        },
        348448,
    ),
    (
        {
            **SIZES,
            "model_type": "deberta",
            "relative_attention": True,
            "pos_att_type": "c2p|p2c",
            "type_vocab_size": 0,
            "position_biased_input": False,
            "max_position_embeddings": 64,
        },
        214984,
    ),
    (DEBERTA2, 184392),
    ({**DEBERTA2, "conv_kernel_size": 3, "conv_act": "gelu"}, 196872),
    (
        {
            **SIZES,
            "model_type": "deberta-v2",
            "relative_attention": True,
            "pos_att_type": "p2c|c2p",
            "max_position_embeddings": 64,
        },
        219464,
    ),
    (
        {
            "model_type": "distilbert",
            "dim": 64,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 160,
            "vocab_size": 1000,
            "max_position_embeddings": 64,
        },
        186312,
    ),
    ({**SIZES, "model_type": "modernbert", "pad_token_id": 0}, 210920),
    (
        {
            "model_type": "opt",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "ffn_dim": 160,
            "vocab_size": 1000,
            "word_embed_proj_dim": 32,
            "do_layer_norm_before": False,
            "max_position_embeddings": 64,
        },
        153120,
    ),
    (
        {
            "model_type": "xglm",
            "d_model": 64,
            "num_layers": 3,
            "attention_heads": 4,
            "ffn_dim": 160,
            "vocab_size": 1000,
            "max_position_embeddings": 64,
        },
        176928,
    ),
    ({"model_type": "gptj", "n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8, "vocab_size": 1000}, 277928),
    (
        {
            "model_type": "gpt_neo",
            "hidden_size": 64,
            "num_layers": 4,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 2]],
            "vocab_size": 1000,
            "max_position_embeddings": 64,
        },
        267392,
    ),
    ({"model_type": "codegen", "n_embd": 64, "n_layer": 3, "n_head": 4, "rotary_dim": 8, "vocab_size": 1000}, 277928),
    (
        {"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 1000, "n_positions": 64},
        199456,
    ),
    (
        {
            "model_type": "dbrx",
            "d_model": 64,
            "n_heads": 4,
            "n_layers": 3,
            "vocab_size": 1000,
            "attn_config": {"kv_n_heads": 2},
            "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
        },
        387264,
    ),
    (
        {
            **SIZES,
            "model_type": "phimoe",
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "lm_head_bias": True,
        },
        536744,
    ),
    (
        {
            **SIZES,
            "model_type": "granitemoe",
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        534720,
    ),
    (
        {
            **SIZES,
            "model_type": "granitemoeshared",
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 96,
        },
        590016,
    ),
    (
        {
            **SIZES,
            **MAMBA2,
            "model_type": "granitemoehybrid",
            "num_key_value_heads": 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 96,
            "layer_types": ["mamba", "attention", "mamba"],
        },
        626032,
    ),
    (
        {
            **SIZES,
            **MAMBA2,
            "model_type": "granitemoehybrid",
            "num_key_value_heads": 2,
            "num_local_experts": 0,
            "shared_intermediate_size": 96,
            "layer_types": ["mamba", "attention", "mamba"],
        },
        256624,
    ),
    ({**SIZES, **MAMBA2, "model_type": "bamba", "num_key_value_heads": 2, "attn_layer_indices": [1]}, 293488),
    (
        {
            **SIZES,
            **MAMBA2,
            "model_type": "falcon_h1",
            "num_key_value_heads": 2,
            "mamba_d_ssm": 128,
            "projectors_bias": False,
        },
        347976,
    ),
    (
        {
            "model_type": "jamba",
            "hidden_size": 64,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "vocab_size": 1000,
            "intermediate_size": 160,
            "num_key_value_heads": 2,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "mamba_d_state": 8,
            "use_mamba_kernels": False,
        },
        963916,
    ),
    (
        {
            "model_type": "jamba",
            "hidden_size": 64,
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "vocab_size": 1000,
            "intermediate_size": 160,
            "num_key_value_heads": 2,
            "num_experts": 1,
            "num_experts_per_tok": 1,
            "mamba_d_state": 8,
            "use_mamba_kernels": False,
            "tie_word_embeddings": False,
        },
        594252,
    ),
    (
        {
            "model_type": "mamba",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "state_size": 8,
            "vocab_size": 1000,
            "use_bias": True,
        },
        153920,
    ),
    (
        {
            "model_type": "mamba2",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 16,
            "n_groups": 2,
            "vocab_size": 1000,
        },
        219144,
    ),
    (
        {
            "model_type": "falcon_mamba",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "state_size": 8,
            "vocab_size": 1000,
            "expand": 4,
        },
        241664,
    ),
    (
        {
            **SIZES,
            "model_type": "minimax",
            "num_key_value_heads": 2,
            "head_dim": 16,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
        551232,
    ),
    (
        {
            "model_type": "qwen3_next",
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "vocab_size": 1000,
            "intermediate_size": 160,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        },
        324784,
    ),
    (
        {
            **SIZES,
            "model_type": "ernie4_5_moe",
            "num_key_value_heads": 2,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
        },
        206280,
    ),
    (
        {
            **SIZES,
            "model_type": "glm",
            "num_key_value_heads": 2,
            "head_dim": 16,
            "attention_bias": True,
            "pad_token_id": 0,
        },
        257856,
    ),
    ({**SIZES, "model_type": "exaone4", "num_key_value_heads": 2}, 257568),
    ({**SIZES, "model_type": "hunyuan_v1_dense", "num_key_value_heads": 2, "head_dim": 16}, 257568),
    (
        {
            **SIZES,
            "model_type": "llama4_text",
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size_mlp": 200,
            "num_local_experts": 4,
            "interleave_moe_layer_step": 2,
            "pad_token_id": 0,
        },
        395968,
    ),
    ({**SIZES, "model_type": "nemotron", "num_key_value_heads": 2, "head_dim": 24}, 245632),
    ({**SIZES, "model_type": "bitnet", "num_key_value_heads": 2}, 258144),
    ({**SIZES, "model_type": "seed_oss", "num_key_value_heads": 2, "head_dim": 16}, 257856),
]


def run_of(model, *lengths, **options):
    about = {"device": "A100", "precision": "bf16", "micro_batch": 4, "checkpointing": False, "optimizer": "adamw"}
    return TrainingJob(
        model if isinstance(model, Transformer) else published(model), lengths, **{**about, **options}
    ).run


@pytest.mark.parametrize(
    ("config", "count"), COUNTED, ids=lambda value: value["model_type"] if isinstance(value, dict) else ""
)
def test_parameters_are_those_of_the_reference_implementation(config, count):
    assert read_configuration(config).n_parameters == count


def test_work_of_an_encoder_decoder_is_that_of_its_tokens():
    """Encoder and keys of the source pass its tokens, all other matrices of the decoder the target's."""
    model = published("t5-3b")
    (encoder,) = model.parts
    whole, short = (time_terms(run_of(model, length, 128)) for length in (512, 256))
    own = 2 * encoder.layer_parameters(sparse=False) * encoder.layers
    keys = 2 * 2 * model.hidden * model.kv_width * model.layers
    norms = 2 * 2 * encoder.hidden * encoder.layers
    flops = 3 * 4 * 256 * (own + keys - norms)
    assert whole["products"] - short["products"] == pytest.approx(flops / device("A100").peak("bf16"), rel=1e-6)
    assert whole["head"] == short["head"]
    assert run_of(model, 512, 128).tokens == 4 * 512


def test_six_operations_a_parameter_and_token_of_each_stack():
    run = run_of("flan-t5-xxl", 512, 512)
    matrices = run.model.n_parameters - run.model.vocab * run.model.hidden  # one of the two embeddings is looked up in
    assert run.sample_flops == pytest.approx(6 * 512 * matrices, rel=0.15)


def test_memory_counts_all_stacks_once():
    model = published("whisper-large")
    terms, most = (memory_terms(run_of(model, 448, micro_batch=size)) for size in (1, 16))
    assert terms["parameters"] == 4 * model.n_parameters
    assert most["activations"] == pytest.approx(16 * terms["activations"])
    only = memory_terms(run_of(model.parts[0], 1500, micro_batch=1))["activations"]
    assert only < terms["activations"] < 2 * only


def test_layers_of_two_kinds_are_as_many_stages_as_both():
    model = published("jamba-v0.1")
    assert model.depth == 32
    options = {"n_gpus": 8, "optimizer": "adamw"}
    held = memory_terms(run_of(model, 4096, parallel=Parallel(pipeline=8), **options))["parameters"]
    assert held == pytest.approx(2 * model.n_parameters / 8, rel=0.05)
    with pytest.raises(InputError, match="32 layers, fewer"):
        run_of(model, 4096, parallel=Parallel(pipeline=64), n_gpus=64)


def test_state_space_layers_do_not_attend_to_everything():
    short, long = (time_terms(run_of("mamba-2.8b", size, micro_batch=1))["attention"] / size for size in (1024, 8192))
    assert long == pytest.approx(short)
    model = replace(published("gpt-neo-2.7b"), positions=8192)
    plain = [time_terms(run_of(model, size, micro_batch=1))["attention"] / size for size in (1024, 8192)]
    assert plain[1] > 3 * plain[0]


def test_adapters_are_on_the_matrices_of_all_stacks():
    model = published("flan-t5-xl")
    adapter = LoRA(8, "attention")
    stacks = sum(adapter.n_parameters(stack) for stack in model.stacks)
    # Of 24 encoder and 24 decoder layers, the latter have attention to the encoder besides.
    assert adapter.n_parameters(model) == stacks == 8 * 4 * (2048 + 2048) * (24 + 2 * 24)


@pytest.mark.parametrize(("name", "tokens"), [("vit-base", 197), ("whisper-small", 1500)])
def test_tokens_that_the_model_fixes_need_not_be_given(name, tokens):
    job = TrainingJob.from_config(name, device="A100", batch_size=8)
    assert job.run.tokens == 8 * tokens
    row = CostModel.load().predict(job).iloc[0]
    assert 0 < row["step_time_s-lo-90"] < row["step_time_s"] < row["step_time_s-hi-90"]


def test_images_before_a_decoder_are_counted_beside_it():
    model = published("llava-1.5-7b")
    bare = read_configuration({**SIZES, "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32})
    assert bare.parts == ()
    (tower,) = model.parts
    assert tower.tokens == 577
    seen, text = run_of(model, 2048).sample_flops, run_of(model.stacks[0], 2048).sample_flops
    assert seen - text == pytest.approx(tower.model_flops(577) * 577)


def test_the_table_of_families_is_sound():
    known = {field.name for field in fields(Transformer)}
    rows = keyed_rows(Path(transformer_families.__file__).with_suffix(".csv"))
    assert {row["like"] for row in rows.values()} <= {*rows, ""}
    assert set(transformer_families._VARIANTS) <= {kind for kind, row in rows.items() if not row["like"]}
    for kind, family in transformer_families.families().items():
        assert {*family.traits, *family.sizes} <= known, kind
