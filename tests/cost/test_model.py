"""`CostModel`: fit, predict, save and load, calibration, and errors."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gpudemand import CostModel, TrainingJob
from gpudemand._validation import InputError
from gpudemand.cost.model_inputs import memory_inputs, step_time_inputs

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.predict.step_time_model.FarFromTrainingWarning")
GIB = 2.0**30


def network(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@pytest.fixture(scope="module")
def jobs():
    networks = [network(width, depth) for width in (16, 32, 64) for depth in (1, 3, 5)]
    return [
        TrainingJob(net, (3, 64, 64), batch_size=batch, optimizer=optimizer, device="T4")
        for net in networks
        for batch, optimizer in ((8, "sgd"), (32, "adam"), (128, "momentum"))
    ]


@pytest.fixture(scope="module")
def costs(jobs):
    """Twice the datasheet's time and a tenth more than the simulated memory."""
    terms, memory = step_time_inputs(jobs).filter(regex="^work:.*:(bytes|flops|launch)$"), memory_inputs(jobs)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.02, len(jobs)))
    return pd.DataFrame(
        {
            "step_time_s": 2 * terms.sum(axis=1).to_numpy() * noise,
            "memory_gib": 0.7 + 1.1 * memory["segments"].to_numpy() / GIB * noise,
        }
    )


@pytest.fixture(scope="module")
def model(jobs, costs):
    return CostModel().fit(jobs, costs)


def test_costs_are_recovered_with_intervals(model, jobs, costs):
    predicted = model.predict(jobs, level=[50, 90])
    assert list(predicted.columns[:5]) == [
        "step_time_s",
        *(f"step_time_s-{e}" for e in ("lo-50", "hi-50", "lo-90", "hi-90")),
    ]
    for target in ("step_time_s", "memory_gib"):
        assert np.median(np.abs(predicted[target] / costs[target] - 1)) < 0.1
        inside = costs[target].between(predicted[f"{target}-lo-90"], predicted[f"{target}-hi-90"])
        assert inside.mean() > 0.8
        assert (predicted[f"{target}-lo-90"] <= predicted[f"{target}-lo-50"]).all()


def test_a_stored_model_predicts_bit_for_bit(model, jobs, tmp_path):
    again = CostModel.load(model.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(again.predict(jobs[:9]), model.predict(jobs[:9]), check_exact=True)
    assert repr(again) == repr(model) == "CostModel(gpu: 27 jobs)"
    assert not [path for path in (tmp_path / "model").iterdir() if path.suffix not in (".json", ".npz")]


def test_the_probability_of_fitting_and_the_largest_batch_agree(model, jobs):
    job = jobs[-1]
    largest = model.max_batch_size(job)
    assert largest > 128
    sizes = (largest, 2 * largest, 64 * largest)
    chances = [model.fits(_with(job, batch_size=size)) for size in sizes]
    assert chances[0] >= 0.95
    assert chances[0] >= chances[1] >= chances[2]
    assert chances[2] < 0.5
    assert model.max_batch_size(_with(job, device="A100 SXM4 80GB")) > largest


def test_breakdown_lists_the_parts(model, jobs):
    table = model.breakdown(jobs[1]).to_frame().set_index("part")["gib"]
    assert table["optimizer state"] == pytest.approx(2 * table["parameters"], rel=0.2)
    assert table["activations"] > 0


def test_one_measured_job_calibrates_a_device(model, jobs, tmp_path):
    own, job = CostModel.load(model.save(tmp_path)), _with(jobs[4], device="L4")
    before = own.predict(job)["step_time_s"][0]
    own.calibrate(job, 3 * before)
    assert own.predict(job)["step_time_s"][0] == pytest.approx(3 * before, rel=0.2)
    assert own.predict(jobs[4])["step_time_s"][0] == model.predict(jobs[4])["step_time_s"][0]


def _with(job, **changes):
    fields = {name: getattr(job, name) for name in ("model", "input_shape", "batch_size", "optimizer", "device")}
    return TrainingJob(**{**fields, **changes})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda m, j, c: CostModel().predict(j), "not fitted"),
        (lambda m, j, c: m.predict([]), "got none"),
        (lambda m, j, c: m.predict(["resnet"]), "got str"),
        (lambda m, j, c: m.predict(_with(j[0], device="AMD EPYC")), "no model of a cpu, only of: gpu"),
        (lambda m, j, c: m.predict(j[0], level=0), "level"),
        (lambda m, j, c: CostModel().fit(j, c[:3]), "costs has 3 rows for 27 jobs"),
        (lambda m, j, c: CostModel().fit(j, c[["memory_gib"]]), "step_time_s"),
        (lambda m, j, c: m.calibrate(j[0], [1.0, 2.0]), "2 values for 1 jobs"),
    ],
)
def test_invalid_input_is_rejected(model, jobs, costs, call, reason):
    with pytest.raises(InputError, match=reason):
        call(model, jobs, costs)


def test_missing_models_and_later_formats_are_rejected(model, tmp_path):
    with pytest.raises(InputError, match=r"no model\.json"):
        CostModel.load(tmp_path)
    place = model.save(tmp_path)
    about = json.loads((place / "model.json").read_text())
    (place / "model.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(InputError, match="update gpudemand"):
        CostModel.load(place)


def test_nothing_is_allocated_for_a_network_larger_than_memory(model):
    with torch.device("meta"):
        giant = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2**18), nn.ReLU(), nn.Linear(2**18, 2**17))
    with pytest.warns(UserWarning, match="unlike|larger"):
        predicted = model.predict(TrainingJob(giant, (3, 64, 64), batch_size=1, device="T4"))
    assert predicted["memory_gib"][0] > 100
    assert model.fits(TrainingJob(giant, (3, 64, 64), batch_size=1, device="T4")) == 0.0
