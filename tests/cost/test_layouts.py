"""Layouts of large models that are suggested, the fewest GPUs, and samples beyond learned positions."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_candidates import BATCH_POWER, BATCH_TOKENS
from gpudemand.cost.layouts import smallest_n_gpus, suggest_layouts
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.transformer_configs import published


def test_layouts_that_fit_fastest_first():
    job = TrainingJob.from_config("llama-3-70b", 4096, device="H100", n_gpus=64, global_batch=128)
    table = suggest_layouts(job)
    assert (table["fits"] >= 0.9).all()
    assert table["tokens_per_s"].is_monotonic_decreasing
    degrees = table[["data", "tensor", "pipeline", "context"]].prod(axis=1)
    assert (degrees == 64).all()
    assert (table["data"] * table["micro_batch"] * table["accumulate"] == 128).all()
    assert suggest_layouts(job, 1).empty
    count = int(smallest_n_gpus(job)["n_gpus"])
    assert suggest_layouts(replace(job, global_batch=None), count).shape[0] > 0


def test_layouts_of_a_batch_of_each_replica_try_smaller_micro_batches():
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=16, batch_size=8)
    table = suggest_layouts(job)
    assert (table["micro_batch"] * table["accumulate"] == 8).all()
    assert {1, 2, 8} <= set(table["micro_batch"])
    sharded = table.query("data == 16 and sharding == 'fsdp'").iloc[0]
    assert sharded["micro_batch"] < 8
    stated = suggest_layouts(replace(job, micro_batch=2, checkpointing="full"))
    assert set(stated["micro_batch"]) == {2}
    alone = stated.query("data == 16 and sharding == 'fsdp'").iloc[0]
    assert sharded["tokens_per_s"] >= alone["tokens_per_s"]
    # The layout of the job itself does not count, nor what follows from it.
    laid = replace(job, parallel=Parallel(sharding="fsdp"))
    pd.testing.assert_frame_equal(suggest_layouts(laid), table)
    odd = suggest_layouts(replace(job, batch_size=6))
    assert set(odd["micro_batch"]) <= {1, 2, 6}


def test_layouts_without_a_batch_are_those_of_a_usual_step():
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=16)
    table = suggest_layouts(job)
    tokens = 4096 * table["data"] * table["micro_batch"] * table["accumulate"]
    usual = BATCH_TOKENS * 16**BATCH_POWER
    assert tokens.between(usual / 2**0.5, usual * 2**0.5).all()
    # A pipeline is not idle for most of the step.
    pipelined = table[table["pipeline"] > 1].iloc[0]
    assert pipelined["tokens_per_s"] > 0.8 * table["tokens_per_s"].max()
    fewest = smallest_n_gpus(replace(job, optimizer="adamw"))
    assert fewest["data"] * fewest["micro_batch"] * fewest["accumulate"] > 1


BART = {
    "d_model": 64,
    **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (("layers", 2), ("ffn_dim", 256))},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
}


def test_samples_beyond_learned_positions_are_warned_of():
    with pytest.warns(UserWarning, match="gpt2 has 1,024 learned positions, too few for 8,192 tokens"):
        TrainingJob.from_config("gpt2", 8192, device="H100", micro_batch=1)
    assert TrainingJob.from_config("gpt2", 1024, device="H100", micro_batch=1).run.seq_len == 1024
    assert TrainingJob.from_config("llama-3-8b", 65536, device="H100", micro_batch=1).run.seq_len == 65536
    with pytest.warns(UserWarning, match="448 learned positions"):
        TrainingJob.from_config("whisper-small", 1024, device="H100", micro_batch=1)


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ("bert-base", 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514}, 512),
        ({"model_type": "opt", "max_position_embeddings": 2048, "ffn_dim": 256}, 2048),
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "type_vocab_size": 2}, 512),
        ({"model_type": "bart", "max_position_embeddings": 1024, **BART}, 1024),
    ],
)
def test_token_types_and_padding_are_no_positions(config, longest):
    """The shorter sample passes without a warning, which the tests make an error."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    config = {"vocab_size": 1000, **sizes, **config} if isinstance(config, dict) else config
    assert TrainingJob.from_config(config, longest, device="H100", micro_batch=1).run.seq_len == longest
    with pytest.warns(UserWarning, match=f"has {longest:,} learned positions, too few for {longest + 1:,} tokens"):
        TrainingJob.from_config(config, longest + 1, device="H100", micro_batch=1)


def test_words_of_a_text_tower_are_no_positions():
    clip = published("clip-vit-base-patch32")
    assert clip.longest == 77
    assert clip.embedding_parameters == (49408 + 77) * 512
