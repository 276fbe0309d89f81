"""Mixtures of experts: kernels of loops and grouped products, all-to-all, what sharding gathers, and intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_candidates import assumptions, candidates
from gpudemand.cost.large_memory import memory_terms
from gpudemand.cost.large_models import LargeModelPredictor, RunClass
from gpudemand.cost.large_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.layouts import training_totals
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.roofline import all_to_all_seconds
from gpudemand.cost.transformer_configs import published
from gpudemand.datasets.devices import device

QWEN, MIXTRAL = published("qwen3-30b-a3b"), published("mixtral-8x7b")
H100 = device("H100")


def run_of(model=QWEN, **options):
    about = {"device": H100, "n_gpus": 8, "parallel": Parallel(sharding="fsdp"), "micro_batch": 1, "optimizer": "adamw"}
    return TrainingJob(model, (4096,), **{**about, "precision": "bf16", "checkpointing": False, **options}).run


def test_a_loop_launches_kernels_for_each_expert_and_grouped_products_do_not():
    loop, grouped = (time_terms(run_of(experts=name))["launch, routed"] for name in ("loop", "grouped"))
    # A router and 128 experts in 48 layers: 16 + 14 kernels, and 13 + 23 each; 28 + 37 for all at once.
    assert loop == pytest.approx(48 * (30 + 128 * 36) * 1e-5)
    assert grouped == pytest.approx(48 * 65 * 1e-5)


def test_a_loop_of_fused_stacks_launches_few_kernels_an_expert():
    loop = time_terms(run_of(experts="loop", kernels="fused"))["launch, routed"]
    assert loop == pytest.approx(48 * (30 + 128 * 8) * 1e-5)


def test_grouped_products_of_plain_stacks_take_longer():
    coefficients = {name: mean for name, (mean, _) in TIME_PRIORS.items()}
    slower = coefficients | {"expert products, plain": 3.0}

    def ratio(**options):
        terms = pd.DataFrame([time_terms(run_of(**options))])
        return step_seconds(terms, slower)[0] / step_seconds(terms, coefficients)[0]

    assert ratio(experts="grouped") > 1.05
    assert ratio(experts="grouped", kernels="fused") == ratio(experts="loop") == 1


def test_a_class_of_few_rows_in_each_project_has_its_own_width():
    """Ten projects measure fifty dense runs within 5 %, and half of them two of experts, 60 % off as a whole."""
    fitting = pytest.importorskip("benchmarks.cost.fit_large", reason="runs from a checkout")
    rng, rows = np.random.default_rng(0), []
    for project in range(10):
        rows += [(project, "dense", 0.05 * error) for error in rng.standard_normal(50)]
        rows += [(project, "experts", (-1) ** project * 0.6)] * (2 * (project % 4 < 2))
    about = pd.DataFrame(rows, columns=["source", "class", "error"])
    about["class"] = [RunClass(kind, "NVIDIA", "Hopper") for kind in about["class"]]
    target = fitting.FittedTarget(lambda terms, c: c["a"] * np.asarray(terms["x"]), {"a": (1.0, 0.1)})
    ways = np.arange(len(about)), np.ones(len(about)), pd.DataFrame({"x": np.ones(len(about))})
    target.fit(ways, np.exp(about["error"]).to_numpy(), about)
    assert target.scales.classes["experts"] > 0.45
    assert target.scales.classes["dense"] < 0.15


def test_experts_that_are_divided_are_sorted_twice():
    one, eight = (run_of(parallel=Parallel(sharding="fsdp", expert=size), experts="grouped") for size in (1, 8))
    assert time_terms(eight)["launch, routed"] == 2 * time_terms(one)["launch, routed"]
    assert time_terms(run_of(published("llama-3-8b")))["launch, routed"] == 0


def test_counts_of_kernels_are_those_that_pytorch_dispatches():
    counted = pytest.importorskip("benchmarks.cost.llm_kernels", reason="runs from a checkout")
    few, many = (sum(counted.expert_kernels(count, grouped=False)) for count in (4, 8))
    assert (many - few) / 4 == 36
    assert 2 * few - many == 30
    assert counted.expert_kernels(4, grouped=True) == (28, 37)


def test_if_nothing_is_said_plain_stacks_loop_and_others_do_not():
    assert run_of().loops_over_experts
    assert not run_of(execution="compiled").loops_over_experts
    assert not run_of(parallel=Parallel(tensor=4, sharding="zero1")).loops_over_experts
    assert not run_of(parallel=Parallel(sharding="fsdp", expert=8)).loops_over_experts
    assert run_of(parallel=Parallel(sharding="fsdp", expert=8), experts="loop").loops_over_experts


def test_an_all_to_all_across_machines_waits_for_the_network():
    within, across = (all_to_all_seconds(H100, 1e9, size, 8) for size in (8, 64))
    # Of eight draws, 5.25 of eight places are different, and seven of eight are elsewhere.
    assert across - within == pytest.approx(1e9 * 5.25 * 7 / 8 / 50e9, rel=0.01)
    assert all_to_all_seconds(H100, 1e9, 1, 8) == 0


def test_tokens_of_limited_groups_go_to_few_machines():
    """DeepSeek-V3 has eight groups of experts, of which a token takes four: at most four of eight machines."""
    anywhere, limited = (all_to_all_seconds(H100, 1e9, 64, 8, groups=groups) for groups in ((0, 0), (8, 4)))
    # Of eight draws, 5.25 of eight places are different, and 3.6 of four.
    assert anywhere - limited == pytest.approx(1e9 * (5.25 - 3.6) * 7 / 8 / 50e9, rel=0.01)
    # Within a machine, whose eight GPUs are a group each; on two machines a token of four groups may go to both.
    within = [all_to_all_seconds(H100, 1e9, 8, 8, groups=groups) for groups in ((0, 0), (8, 4))]
    assert within[1] / within[0] == pytest.approx(3.6 / 5.25, rel=0.01)
    two = [all_to_all_seconds(H100, 1e9, 16, 8, groups=groups) for groups in ((0, 0), (8, 4), (1, 1))]
    assert two[0] == two[1] == two[2]


def test_groups_of_experts_are_read_from_a_configuration():
    model = published("deepseek-v3")
    assert (model.expert_groups, model.active_groups) == (8, 4)
    assert (QWEN.expert_groups, QWEN.active_groups) == (0, 0)
    options = {"n_gpus": 64, "parallel": Parallel(expert=64, sharding="zero1")}
    limited, anywhere = (time_terms(run_of(one, **options)) for one in (model, replace(model, active_groups=0)))
    assert limited["expert"] < 0.75 * anywhere["expert"]
    assert {name: limited[name] for name in limited if name != "expert"} == {
        name: anywhere[name] for name in anywhere if name != "expert"
    }
    for change, message in (
        ({"active_groups": 9}, "9 active groups are more than the 8"),
        ({"expert_groups": 5}, "256 experts do not divide into 5 groups"),
        ({"expert_groups": -2}, "expert_groups must be"),
        ({"expert_groups": 256, "active_groups": 4}, "4 of 256 groups hold fewer than 8 active experts"),
    ):
        with pytest.raises(InputError, match=message):
            replace(model, **change)


def test_fused_stacks_keep_what_latent_attention_compresses():
    """They make queries, keys and values anew, which are 128 heads wide where 2,112 numbers are kept."""
    model, options = published("deepseek-v3"), {"parallel": Parallel(expert=8, sharding="zero1"), "kernels": "fused"}
    saved, selected = (memory_terms(run_of(model, **options, checkpointing=one)) for one in (False, "selective"))
    anew = 3 * 128 * 192 - (1536 + 512 + 64)
    others = [
        memory_terms(run_of(replace(model, kv_rank=0, q_rank=0, kv_heads=128), **options, checkpointing=one))
        for one in (False, "selective")
    ]
    dropped = (saved["activations"] - selected["activations"]) / 4096 / model.layers
    plain = (others[0]["activations"] - others[1]["activations"]) / 4096 / model.layers
    assert dropped - plain == pytest.approx(2.0 * anew, rel=0.01)
    once, twice = (time_terms(run_of(model, **options, checkpointing=one)) for one in (False, "selective"))
    more = 2.0 * 4096 * model.layers * 128 * (1536 * 192 + 512 * (128 + 128)) / H100.peak("bf16")
    assert twice["products"] - once["products"] == pytest.approx(more)


def test_fused_stacks_do_not_keep_what_experts_put_out():
    """Of eight experts a token has eight outputs as wide as itself, where plain stacks keep them to weigh them."""
    plain, fused = (run_of(kernels=name, experts="grouped") for name in ("plain", "fused"))
    kept, left = (memory_terms(one)["activations"] / 4096 / QWEN.layers for one in (plain, fused))
    assert kept - left == pytest.approx(2.0 * 8 * QWEN.hidden)
    whole = (memory_terms(replace(one, checkpointing="full"))["activations"] for one in (plain, fused))
    assert len(set(whole)) == 1


def test_queries_that_no_rank_compresses_are_made_anew_too():
    """DeepSeek-V2-Lite drops 16 queries of 192 and makes them again from the 2,048 numbers of a token."""
    model, options = published("deepseek-v2-lite"), {"parallel": Parallel(sharding="zero1"), "kernels": "fused"}
    once, twice = (time_terms(run_of(model, **options, checkpointing=one)) for one in (False, "selective"))
    queries, keys_and_values = 2048 * 16 * 192, 512 * 16 * (128 + 128)
    more = 2.0 * 4096 * model.layers * (queries + keys_and_values) / H100.peak("bf16")
    assert twice["products"] - once["products"] == pytest.approx(more)
    plain = replace(model, kv_rank=0)
    once, twice = (time_terms(run_of(plain, **options, checkpointing=one)) for one in (False, "selective"))
    assert twice["products"] == once["products"]


def test_deepseek_v3_takes_about_as_long_as_its_report_says():
    """180 thousand GPU-hours a trillion tokens (arXiv:2412.19437), with an all-to-all that is hidden nearly whole."""
    layout = Parallel(pipeline=16, expert=64, sharding="zero1")
    options = {"device": "H800 SXM5", "precision": "fp8", "n_gpus": 2048, "global_batch": 15360, "kernels": "fused"}
    job = TrainingJob.from_config("deepseek-v3", 4096, parallel=layout, checkpointing="selective", **options)
    totals = training_totals(job, 1e12)
    assert totals["gpu_hours-lo-90"] < 180e3 < totals["gpu_hours"] < 1.5 * 180e3


def test_experts_that_are_divided_among_all_gpus_are_not_gathered():
    whole, divided = (run_of(MIXTRAL, parallel=Parallel(sharding="fsdp", expert=size)) for size in (1, 8))
    dense = MIXTRAL.n_parameters - MIXTRAL.layers * MIXTRAL.expert_parameters(sparse=True)
    share = time_terms(divided)["gather"] / time_terms(whole)["gather"]
    assert share == pytest.approx(dense / MIXTRAL.n_parameters, rel=0.01)


def test_a_job_says_how_its_experts_compute_and_loops_take_longer():
    options = {"device": "H100", "n_gpus": 8, "parallel": Parallel(sharding="fsdp"), "micro_batch": 1}
    loop, grouped = (
        TrainingJob.from_config("qwen3-30b-a3b", 4096, experts=name, **options) for name in ("loop", "grouped")
    )
    assert "loop experts" in repr(loop)
    seconds = LargeModelPredictor.load().predict([loop.run, grouped.run])["step_time_s"]
    assert seconds[0] > 2 * seconds[1]


def test_experts_of_a_dense_model_and_unknown_kinds_are_refused():
    with pytest.raises(InputError, match="llama-3-8b has none"):
        run_of(published("llama-3-8b"), experts="grouped")
    with pytest.raises(InputError, match="experts"):
        run_of(experts="eager")
    with pytest.raises(InputError, match="experts"):
        replace(run_of().job, experts="batched")


def test_unknown_degrees_are_candidates_and_widen_the_interval():
    layout = Parallel(pipeline=8, tensor=2, sharding="zero1")
    options = {"n_gpus": 64, "global_batch": 64, "checkpointing": False, "optimizer": "adamw"}
    unknown = run_of(MIXTRAL, parallel=layout, **options)
    known = run_of(MIXTRAL, parallel=replace(layout, expert=8, virtual_pipeline=4), **options)
    assert not unknown.is_known
    assert {(way.layout.expert, way.layout.virtual_pipeline) for _, way in candidates(unknown)} == {
        (expert, virtual) for expert in (1, 2, 4, 8) for virtual in (1, 4)
    }
    assert candidates(known) == [(1.0, known)]
    table = LargeModelPredictor.load().predict([unknown, known])
    usual = ("kernels fused", "FlashAttention 3", "experts grouped", "loss fused", "stack_year 2024")
    assert assumptions(run_of(MIXTRAL, optimizer=None, checkpointing=None))[:2] == [
        "checkpointing full, as usual with the rest",
        "optimizer adamw_bf16, as usual with the rest",
    ]
    wide, narrow = table["step_time_s-hi-90"] / table["step_time_s-lo-90"]
    assert wide > narrow
    assert assumptions(known) == [f"{one}, as usual with the rest" for one in usual]
    adapter = {
        "adapter": LoRA(16),
        "optimizer": "adamw",
        "checkpointing": "full",
        "parallel": Parallel(tensor=8, sharding="zero1"),
    }
    adapted = TrainingJob.from_config("llama-3-8b", 4096, n_gpus=8, micro_batch=1, **adapter)
    assert assumptions(adapted.run) == [f"{one}, as usual with the rest" for one in usual if "experts" not in one]
    told = {"kernels": "fused", "attention": "flash-3", "experts": "grouped", "cross_entropy": "fused"}
    assert assumptions(run_of(MIXTRAL, parallel=known.parallel, **options, **told, stack_year=2025)) == []
    assert assumptions(unknown)[0].startswith("expert parallel 8, seen in")


def test_degrees_that_cannot_be_others_are_known():
    assert run_of(published("llama-3-8b"), parallel=Parallel(sharding="fsdp")).layout.is_known
    assert run_of(n_gpus=1).layout.is_known


def test_runs_on_gpus_of_a_generation_or_vendor_of_few_runs_have_wider_intervals():
    options = {"parallel": Parallel(sharding="fsdp"), "n_gpus": 8}
    runs = [run_of(published("llama-3-8b"), device=name, **options) for name in ("A100", "RTX 5090", "MI355X")]
    table = LargeModelPredictor.load().predict(runs)
    ratio = table["step_time_s-hi-90"] / table["step_time_s"]
    assert ratio[0] < ratio[1] < ratio[2]


def test_narrow_experts_take_longer_for_the_same_work():
    wide = replace(QWEN, expert_ffn=2 * QWEN.expert_ffn, active_experts=QWEN.active_experts // 2)
    one, other = (time_terms(run_of(model)) for model in (QWEN, wide))
    assert one["experts"] == pytest.approx(other["experts"])
    assert one["narrow"] == pytest.approx(2 * other["narrow"])


def test_latent_experts_take_and_send_narrow_tokens():
    latent = replace(QWEN, expert_hidden=QWEN.hidden // 4)
    sides = 2 * QWEN.hidden * latent.expert_hidden * QWEN.layers
    assert latent.routed_parameters == QWEN.routed_parameters / 4
    assert latent.n_parameters - latent.routed_parameters == QWEN.n_parameters - QWEN.routed_parameters + sides
    divided = {"parallel": Parallel(expert=8, sharding="zero1"), "device": replace(H100, interconnect_gb_s=1e-3)}
    assert time_terms(run_of(latent, **divided))["expert"] == pytest.approx(
        time_terms(run_of(**divided))["expert"] / 4, rel=0.01
    )


def test_experts_between_layers_of_other_kinds_are_divided():
    """All experts of Nemotron-3 are in a stack beside those of attention and of state spaces."""
    nano = published("nemotron-3-nano")
    assert (nano.experts, nano.routed_experts, nano.n_parameters) == (0, 128, 31577937344)
    known = run_of(nano, parallel=Parallel(expert=8, sharding="zero1"))
    assert time_terms(known)["expert"] > 0
    unknown = run_of(nano, parallel=Parallel(sharding="zero1"), kernels="fused", n_gpus=64)
    assert {8, 64} <= {way.layout.expert_degree for _, way in candidates(unknown)}
    with pytest.raises(InputError, match="has 128 experts"):
        run_of(nano, parallel=Parallel(expert=3, sharding="zero1"), n_gpus=3)


def test_without_sequence_parallelism_each_gpu_sends_all_its_tokens_to_the_experts():
    layouts = [Parallel(tensor=8, expert=8, sequence=kind) for kind in (True, False)]
    divided, whole = (time_terms(run_of(MIXTRAL, parallel=layout))["experts"] for layout in layouts)
    assert whole == pytest.approx(8 * divided)


def test_stacks_that_divide_experts_have_no_buckets_of_ddp():
    one, eight = (memory_terms(run_of(parallel=Parallel(expert=size)))["buffers"] for size in (1, 8))
    assert one > 0
    assert eight == 0


@pytest.mark.parametrize(("tensor", "expert"), [(4, 2), (4, 4), (8, 2), (2, 8)])
def test_experts_are_divided_by_tensor_parallelism_unless_a_layout_says_otherwise(tensor, expert):
    """Memory never rises with the GPUs that share experts; whole experts are said to be so."""
    layouts = [Parallel(tensor=tensor, expert=size, sharding="zero1") for size in (1, expert)]
    one, several, whole = (
        memory_terms(run_of(MIXTRAL, parallel=layout, n_gpus=64))
        for layout in (*layouts, replace(layouts[1], expert_tensor=1))
    )
    experts, n_bytes = MIXTRAL.routed_parameters, 2.0
    assert one["parameters"] - several["parameters"] == pytest.approx(n_bytes * experts / tensor * (1 - 1 / expert))
    assert whole["parameters"] - several["parameters"] == pytest.approx(n_bytes * experts / expert * (1 - 1 / tensor))
    assert one["states"] == pytest.approx(several["states"]) == pytest.approx(whole["states"])


def test_divided_experts_gather_the_tokens_that_arrive():
    layout = Parallel(tensor=4, expert=2, sharding="zero1")
    divided, whole = (
        time_terms(run_of(MIXTRAL, parallel=replace(layout, expert_tensor=size), n_gpus=64))["expert"]
        for size in (4, 1)
    )
    assert divided > 2 * whole


def test_the_division_of_experts_is_assumed_only_where_there_is_a_choice():
    def lines(**options):
        run = run_of(MIXTRAL, parallel=Parallel(sharding="zero1", virtual_pipeline=1, **options), n_gpus=64)
        return [line for line in assumptions(run) if line.startswith("expert tensor")]

    assert lines(tensor=4, expert=2) == ["expert tensor parallel 4, as usual with the rest"]
    assert lines(tensor=8) == ["expert tensor parallel 8, as usual with the rest"]
    assert lines(tensor=4, expert=2, expert_tensor=1) == lines(tensor=4, expert=1) == lines(expert=8) == []
    assert run_of(MIXTRAL, parallel=Parallel(tensor=8, expert=8)).layout.expert_tensor_degree == 1


def test_layouts_that_leave_no_room_for_divided_experts_are_refused():
    with pytest.raises(InputError, match="expert=8 x expert_tensor=4 does not divide the 8 GPUs"):
        run_of(MIXTRAL, parallel=Parallel(tensor=8, expert=8, expert_tensor=4))
    with pytest.raises(InputError, match="no experts"):
        run_of(published("llama-3-8b"), parallel=Parallel(tensor=8, expert_tensor=8))
    assert repr(Parallel(tensor=4, expert=2, expert_tensor=1)) == "Parallel(tensor=4, expert=2, expert_tensor=1, none)"
