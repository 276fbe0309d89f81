"""`CostModel`: fit, predict, save and load, calibration, and errors."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand import CostModel, TrainingJob
from gpudemand._files import write_manifest
from gpudemand._validation import InputError, UnlikelyCostWarning
from gpudemand.cost import networks
from gpudemand.cost.model import memory_inputs, step_time_inputs

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
GIB = 2.0**30


def network(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@pytest.fixture(scope="module")
def jobs():
    networks = [network(width, depth) for width in (16, 32, 64) for depth in (1, 2, 3)]
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


@pytest.mark.parametrize("by", [1000, 1 / 1000])
def test_a_measured_step_in_another_unit_is_said(model, jobs, tmp_path, by):
    own, job = CostModel.load(model.save(tmp_path)), _with(jobs[4], device="L4")
    before = own.predict(job)["step_time_s"][0]
    with pytest.warns(UnlikelyCostWarning, match="step_time_s of 1 job is over 100 times off .* must be in seconds"):
        own.calibrate(job, by * before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own.calibrate(job, 20 * before)  # what was told before is no measure of what is told now


def _with(job, **changes):
    fields = {name: getattr(job, name) for name in ("model", "input_shape", "batch_size", "optimizer", "device")}
    return TrainingJob(**{**fields, **changes})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda m, j, c: CostModel().predict(j), "not fitted"),
        (lambda m, j, c: m.predict([]), "jobs is empty"),
        (lambda m, j, c: m.predict(["resnet"]), "got str"),
        (lambda m, j, c: m.predict(_with(j[0], device="AMD EPYC")), "no model of a cpu, only of: gpu"),
        (lambda m, j, c: m.predict(j[0], level=0), "level"),
        (lambda m, j, c: CostModel().fit(j, c[:3]), "costs has 3 values for 27 jobs"),
        (lambda m, j, c: CostModel().fit(j, c[["memory_gib"]]), "step_time_s"),
        (lambda m, j, c: m.predict(j[0], level=0.9), "looks like a share"),
        (lambda m, j, c: m.calibrate(j[0], [1.0, 2.0]), "2 values for 1 jobs"),
        (lambda m, j, c: m.calibrate(j[:2], [1.0, -1.0]), "step_time_s holds 1 values that are no times"),
        (lambda m, j, c: m.calibrate(j[:2], [1.0, "fast"]), "step_time_s holds 1 values that are not finite"),
        (lambda m, j, c: m.fits(j[:2]), "one TrainingJob is needed; got 2"),
        (lambda m, j, c: m.max_batch_size(j[:2]), "one TrainingJob is needed; got 2"),
        (lambda m, j, c: m.max_batch_size(j[0], probability=95), "probability must be a number above 0 and below 1"),
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


def stamped(folder):
    """Give edited files the checksums of an undamaged model."""
    about = json.loads((folder / "model.json").read_text())
    write_manifest(folder, "model.json", {key: about[key] for key in ("format", "random_state", "fitted_on")})


def rewrite(folder, target, **changes):
    """Change arrays of a stored model; None removes one."""
    path = folder / f"gpu_{target}.npz"
    with np.load(path) as stored:
        arrays = {**stored, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    stamped(folder)


class Harmful:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return open, (self.trace, "w")


def about(folder, **changes):
    content = json.loads((folder / "model.json").read_text())
    content = {**content, **changes}
    write_manifest(folder, "model.json", {key: content[key] for key in ("format", "random_state", "fitted_on")})


TIME, MEMORY = "step_time_s", "memory_gib"
DAMAGES = {
    "no JSON": lambda f: (f / "model.json").write_text("{"),
    "no UTF-8": lambda f: (f / "model.json").write_bytes(b"\xff\xfe"),
    "a list": lambda f: (f / "model.json").write_text("[]"),
    "no format": lambda f: (f / "model.json").write_text("{}"),
    "an earlier format": lambda f: about(f, format=2),
    "other kinds": lambda f: about(f, fitted_on={"tpu": {"jobs": 1, "devices": []}}),
    "kinds that are a path": lambda f: about(f, fitted_on={"../gpu": {"jobs": 1, "devices": []}}),
    "no kinds": lambda f: about(f, fitted_on={}),
    "kinds without jobs": lambda f: about(f, fitted_on={"gpu": 3}),
    "a missing file": lambda f: (f / "gpu_memory_gib.npz").unlink(),
    "an empty file": lambda f: (f / "gpu_memory_gib.npz").write_bytes(b""),
    "files that were swapped": lambda f: (f / "gpu_memory_gib.npz").replace(f / "gpu_step_time_s.npz"),
    "half a file": lambda f: cut(f / "gpu_step_time_s.npz"),
    "half a file with its checksum": lambda f: (cut(f / "gpu_step_time_s.npz"), stamped(f)),
    "no archive, with its checksum": lambda f: ((f / "gpu_memory_gib.npz").write_bytes(b"x" * 99), stamped(f)),
    "another model, with its checksum": lambda f: (
        (f / "gpu_memory_gib.npz").write_bytes((f / "gpu_step_time_s.npz").read_bytes()),
        stamped(f),
    ),
    "a missing array": lambda f: rewrite(f, TIME, dual_coef_=None),
    "an unknown array": lambda f: rewrite(f, MEMORY, more=np.zeros(3)),
    "a shorter array": lambda f: rewrite(f, TIME, coefficients_=np.zeros(3)),
    "another dimension": lambda f: rewrite(f, MEMORY, low_=np.zeros((4, 1))),
    "a scalar": lambda f: rewrite(f, MEMORY, range_=np.float64(1)),
    "text for numbers": lambda f: rewrite(f, MEMORY, range_=np.array(["a", "b"])),
    "numbers that are not finite": lambda f: rewrite(f, MEMORY, range_=np.array([np.nan, 1.0])),
    "a tree in a circle": lambda f: edit_tree(f, left=0),
    "a tree that leaves its array": lambda f: edit_tree(f, right=10**9),
    "a tree over unknown features": lambda f: edit_tree(f, feature=10**6),
    "names of other features": lambda f: rename_features(f),
}


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edit_tree(folder, **changes):
    with np.load(folder / "gpu_step_time_s.npz") as stored:
        arrays = {f"error_scale_{name}": stored[f"error_scale_{name}"].copy() for name in changes}
    for name, value in changes.items():
        arrays[f"error_scale_{name}"][1] = value
    rewrite(folder, TIME, **arrays)


def rename_features(folder):
    with np.load(folder / "gpu_memory_gib.npz") as stored:
        rewrite(folder, MEMORY, feature_names=np.array([f"x{i}" for i in range(stored["feature_names"].size)]))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(model, tmp_path, damage):
    place = model.save(tmp_path / "model")
    CostModel.load(place)
    DAMAGES[damage](place)
    with pytest.raises(InputError) as error:
        CostModel.load(place)
    assert "\n" not in str(error.value)


def test_any_changed_byte_is_noticed(model, tmp_path):
    place = model.save(tmp_path / "model")
    rng = np.random.default_rng(0)
    for path in sorted(place.iterdir()):
        whole = path.read_bytes()
        for position in rng.integers(0, len(whole) - 1, 30):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << rng.integers(8)
            path.write_bytes(damaged)
            with pytest.raises(InputError):
                CostModel.load(place)
        path.write_bytes(whole)
    CostModel.load(place)


def test_pickles_are_not_loaded(model, tmp_path):
    place, trace = model.save(tmp_path / "model"), tmp_path / "trace"
    rewrite(place, MEMORY, low_=np.array([Harmful(trace)] * 4, dtype=object))
    with pytest.raises(InputError, match="does not hold a model"):
        CostModel.load(place)
    assert not trace.exists()


def test_a_model_is_saved_over_a_model_only(model, tmp_path):
    place = model.save(model.save(tmp_path / "model"))
    CostModel.load(place)
    (place / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"'notes\.txt', which would be lost"):
        model.save(place)
    assert (place / "notes.txt").read_text() == "mine"
    CostModel.load(place)


def test_nothing_is_allocated_for_a_network_larger_than_memory(model):
    with torch.device("meta"):
        giant = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2**18), nn.ReLU(), nn.Linear(2**18, 2**17))
    with pytest.warns(UserWarning, match="unlike|larger"):
        predicted = model.predict(TrainingJob(giant, (3, 64, 64), batch_size=1, device="T4"))
    assert predicted["memory_gib"][0] > 100
    assert model.fits(TrainingJob(giant, (3, 64, 64), batch_size=1, device="T4")) == 0.0


@pytest.mark.filterwarnings("ignore:.*unlike every job")
@pytest.mark.parametrize("device", ["RTX 3090", "A40", "A100"])
def test_tf32_takes_no_longer_than_single_precision(device):
    """On the cards of players its peak is that of single precision, and batches need not be in channels last."""
    vgg, bundled = networks.build("vgg16", input_shape=(3, 224, 224), n_classes=1000), CostModel.load()
    jobs = [
        TrainingJob(vgg, (3, 224, 224), batch_size=64, device=device, precision=name)
        for name in ("fp32", "tf32", "bf16")
    ]
    table = bundled.predict(jobs).filter(like="step_time_s")
    assert (table.loc[1] <= table.loc[0] * (1 + 1e-9)).all()
    assert table.loc[2, "step_time_s"] < table.loc[1, "step_time_s"]
    # What was measured counts as it is.
    slow = 2.0 * table.loc[0, "step_time_s"]
    bundled.calibrate(jobs[1], slow)
    assert bundled.predict(jobs[1])["step_time_s"][0] == pytest.approx(slow, rel=0.2)


def test_a_job_may_state_its_host():
    small = TrainingJob(network(16, 2), (3, 8, 8), batch_size=2, device="A100")
    jobs = [replace(small, host=host) for host in (None, 1e-4, "H200", 1e-4)]
    jobs.insert(1, TrainingJob.from_config("bert-base", 128, device="A100", micro_batch=1))
    model = CostModel.load()
    told = [model, None, *(CostModel.load(host=host) for host in (1e-4, "H200", 1e-4))]
    found = model.predict(jobs)
    assert found.index.tolist() == list(range(5))
    for row in (0, 2, 3, 4):
        pd.testing.assert_frame_equal(found.iloc[[row]].reset_index(drop=True), told[row].predict(small))
    assert found["step_time_s"][2] > 3 * found["step_time_s"][0]
    assert model.fits(jobs[2]) == model.fits(small)


@pytest.mark.parametrize(
    ("device", "host", "reason"),
    [
        ("A100", 0, "host must be a number above 0"),
        ("A100", 2.0, "at most 0.001"),
        ("A100", [1e-5], "host must be a number"),
        ("A100", "no such GPU", "no such GPU"),
        ("AMD EPYC", 1e-5, "is a CPU, which launches no kernels"),
    ],
)
def test_a_host_that_cannot_be_is_rejected(device, host, reason):
    with pytest.raises(InputError, match=reason):
        TrainingJob(network(16, 1), (3, 8, 8), device=device, host=host)


def test_a_host_is_of_traced_networks_only():
    with pytest.raises(InputError, match="host is for traced networks"):
        TrainingJob.from_config("bert-base", 128, device="A100", host=1e-5)


@pytest.mark.parametrize("probability", [0, 1])
@pytest.mark.parametrize("kind", ["traced", "configuration"])
def test_a_largest_batch_needs_a_probability_that_leaves_a_doubt(probability, kind):
    job = TrainingJob.from_config("bert-base", 128, device="A100")
    job = TrainingJob(network(16, 1), (3, 8, 8), device="A100") if kind == "traced" else job
    with pytest.raises(InputError, match="probability must be a number above 0 and below 1"):
        CostModel.load().max_batch_size(job, probability)
