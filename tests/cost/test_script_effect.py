"""Steps in training scripts: the table of public ones, its effect, and where predictions take it up."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gpudemand import CostModel, TrainingJob
from gpudemand._validation import InputError
from gpudemand.cost import networks
from gpudemand.cost.step_time_model import ScriptEffect
from gpudemand.datasets.registry import bundled_path

TIMES = ["step_time_s", "step_time_s-lo-90", "step_time_s-hi-90"]


@pytest.fixture(scope="module")
def fitting():
    return pytest.importorskip("benchmarks.cost.fit_large", reason="runs from a checkout")


def test_seconds_follow_from_what_was_printed():
    rows = pd.read_csv(bundled_path("cost/training_scripts.csv"))
    units = rows["unit"].map({"s/step": 1.0, "s": 1.0, "h": 3600.0})
    stated, counted = units * rows["value"] / rows["items"], rows["items"] / rows["value"]
    np.testing.assert_allclose(rows["step_time_s"], stated.where(units.notna(), counted), rtol=1e-4)
    assert len(rows) > 400
    assert rows["source"].nunique() > 30
    assert rows[["printed_in", "commit", "licence", "includes"]].notna().all().all()


def test_every_network_of_the_table_can_be_built_and_half_of_its_projects_are_scored():
    pytest.importorskip("torch")
    from benchmarks.cost.networks import OWN
    from benchmarks.cost.scripts import scored_projects

    rows = pd.read_csv(bundled_path("cost/training_scripts.csv"))
    library = rows["graph"].str.partition(":")
    own = library[2].str.rpartition("@")[0][library[0] == "own"]
    assert set(own) <= set(OWN)
    assert set(library[0]) == {"own", "timm", "torchvision"}
    assert len(scored_projects()) == rows["source"].nunique() // 2


@pytest.mark.slow
def test_intervals_cover_projects_never_seen(fitting):
    """Nine of ten steps of new projects are inside a 90 % interval, of which the bare step's is a part."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(250):
        ratios = rng.normal(0.3, 0.2, 9)
        rows = np.repeat(ratios[:8], 5) + rng.normal(0, 0.1, 40)
        effect = fitting.fit_script_effect(np.exp(rows), np.ones(40), np.repeat(np.arange(8), 5))
        reach = np.exp(1.645 * 0.1)
        _, low, high = effect.apply(np.array([[1.0, 1 / reach, reach]]), [90])[0]
        inside.append(low <= np.exp(ratios[8] + rng.normal(0, 0.1)) <= high)
    assert 0.86 < np.mean(inside) < 0.95


def test_a_project_counts_once_however_many_rows_it_has(fitting):
    few = fitting.fit_script_effect([1.1, 1.2, 1.6], np.ones(3), list("abc"))
    many = fitting.fit_script_effect([1.1, 1.2, *[1.6] * 50], np.ones(52), [*"ab", *"c" * 50])
    assert few == pytest.approx(many)


def test_what_a_script_takes_whatever_the_network_is_told_apart_from_its_ratio(fitting):
    rng = np.random.default_rng(0)
    bare, projects = np.geomspace(1e-3, 1.0, 60), np.arange(60) % 12
    effect = fitting.fit_script_effect(1.2 * (bare + 2e-3) * np.exp(0.02 * rng.normal(size=60)), bare, projects)
    assert effect.start_s == pytest.approx(2e-3, rel=0.2)
    assert effect.ratio == pytest.approx(1.2, rel=0.02)
    assert effect.apply(np.array([[1e-3]]), [])[0, 0] == pytest.approx(1.2 * 3e-3, rel=0.1)


def test_few_projects_and_bad_files_are_refused(tmp_path, fitting):
    with pytest.raises(InputError, match="three projects or more; got 2"):
        fitting.fit_script_effect([1.1, 1.2], [1.0, 1.0], ["a", "b"])
    effect = ScriptEffect(0.2, 0.1, 9)
    fitting.save_script_effect(effect, tmp_path / "effect.json")
    assert ScriptEffect.load(tmp_path / "effect.json") == effect
    for content in ("[]", "{}", json.dumps({**effect._asdict(), "mean": "x"}), "\x00"):
        (tmp_path / "effect.json").write_text(content)
        with pytest.raises(InputError, match=r"effect\.json holds no effect of scripts"):
            ScriptEffect.load(tmp_path / "effect.json")


@pytest.mark.slow
def test_only_steps_of_training_on_gpus_take_longer_in_a_script():
    pytest.importorskip("torch")
    shape = (3, 224, 224)
    net, model = networks.build("resnet18", input_shape=shape), CostModel.load()
    trained = TrainingJob(net, shape, batch_size=64, device="A100")
    others = [
        TrainingJob(net, shape, batch_size=64, device="A100", mode="inference"),
        TrainingJob(net, shape, batch_size=16, device="AMD EPYC"),
        TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8, global_batch=64),
    ]
    bare, script = (model.predict([trained, *others], training_script=flag) for flag in (False, True))
    pd.testing.assert_frame_equal(bare.iloc[1:], script.iloc[1:])
    effect = ScriptEffect.load()
    assert script.loc[0, "step_time_s"] == pytest.approx((bare.loc[0, "step_time_s"] + effect.start_s) * effect.ratio)
    assert effect.ratio > 1
    widths = [np.log(table.loc[0, TIMES[2]] / table.loc[0, TIMES[1]]) for table in (bare, script)]
    assert widths[1] > max(widths[0], np.log(effect.interval(90)[1] / effect.interval(90)[0]))
    assert script.loc[0, "memory_gib"] == bare.loc[0, "memory_gib"]
