"""Step time on devices and networks that were not measured."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpudemand._validation import InputError
from gpudemand.cost import gaussian_process
from gpudemand.cost.step_time_model import FarFromTrainingWarning, StepTimeModel

DEVICES = {"slow": (10.0, 400.0), "middle": (30.0, 900.0), "quick": (120.0, 2000.0)}


def simulate(rng: np.random.Generator, n: int = 240, devices: tuple[str, ...] = ("slow", "middle")) -> pd.DataFrame:
    """Simulated jobs of 12 families, each with its mix of work and its efficiency."""
    family = rng.integers(0, 12, n)
    device = np.array(devices, dtype=object)[rng.integers(0, len(devices), n)]
    peak, bandwidth = np.array([DEVICES[name] for name in device]).T
    batch = 2.0 ** rng.integers(3, 8, n)
    share = (family % 6 + 1) / 7
    table = pd.DataFrame(
        {
            "batch_size": batch, "precision": "fp32", "layout": "contiguous", "mode": "train", "optimizer_states": 1.0,
            "n_gpus": 1, "framework": "torch", "execution": "eager", "device": "cuda", "framework_version": "2.4",
            "device_name": device, "device_peak_tflops": peak, "device_bandwidth_gb_s": bandwidth, "device_sms": 80.0,
    "device_boost_clock_mhz": 1500.0,
            "device_interconnect_gb_s": 32.0, "device_fp32_tflops": peak, "device_l2_mib": 6.0, "device_year": 2020.0,
            "work:conv_3x3:flops": batch * share / peak, "work:conv_3x3:bytes": batch * 20 * (1 - share) / bandwidth,
            "work:start": 1e-3, "family": family,
        }
    )  # fmt: skip
    noise = np.exp(rng.normal(0, 0.05, n) + 0.05 * np.sin(family))
    return table.assign(y=(2.5 * table["work:conv_3x3:flops"] + 4 * table["work:conv_3x3:bytes"] + 0.002) * noise)


def fitted(table: pd.DataFrame) -> StepTimeModel:
    return StepTimeModel().fit(table.drop(columns=["y", "family"]), table["y"], groups=table["family"])


def error(model: StepTimeModel, table: pd.DataFrame) -> float:
    return float(np.median(np.abs(model.predict(table) / table["y"] - 1)))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return simulate(np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(rows: pd.DataFrame) -> StepTimeModel:
    return fitted(rows)


@pytest.mark.slow
def test_a_new_device_is_predicted_from_its_datasheet(model: StepTimeModel) -> None:
    assert error(model, simulate(np.random.default_rng(1), devices=("quick",))) < 0.15


def test_time_increases_with_the_batch(model: StepTimeModel, rows: pd.DataFrame) -> None:
    job, scale = rows.iloc[[0] * 5], 2.0 ** np.arange(5)
    work = [name for name in rows if name.startswith("work:conv")]
    grown = job.assign(batch_size=8 * scale, **{name: job[name] * scale for name in work})
    assert (np.diff(model.predict(grown)) > 0).all()


def test_one_job_calibrates_the_factor_of_a_device(model: StepTimeModel, rows: pd.DataFrame) -> None:
    new = simulate(np.random.default_rng(2), devices=("quick",))
    new["y"] *= 2.0
    before = error(model, new)
    copy = StepTimeModel.from_arrays(model.to_arrays()).calibrate(new.iloc[[0]], new["y"].iloc[[0]])
    assert before > 0.4
    assert error(copy, new.iloc[1:]) < 0.15
    np.testing.assert_array_equal(copy.predict(rows), model.predict(rows))


def test_calibrating_again_replaces_what_a_device_had(model: StepTimeModel, rows: pd.DataFrame) -> None:
    copy = StepTimeModel.from_arrays(model.to_arrays())
    once = copy.calibrate(rows.iloc[:3], 3 * rows["y"].iloc[:3]).predict(rows)
    np.testing.assert_array_equal(copy.calibrate(rows.iloc[:3], 3 * rows["y"].iloc[:3]).predict(rows), once)


def test_a_measured_job_calibrates_its_larger_batches(model: StepTimeModel, rows: pd.DataFrame) -> None:
    """A host ten times as slow as in training, measured at small batches only."""
    work = [name for name in rows if name.startswith("work:conv")]
    batch = 2.0 ** np.arange(6)
    grown = rows.iloc[[0] * 6].reset_index(drop=True).assign(batch_size=8 * batch)
    grown = grown.assign(**{name: 0.002 * grown[name] * batch for name in work})
    truth = model.predict(grown) + 0.02
    copy = StepTimeModel.from_arrays(model.to_arrays()).calibrate(grown.iloc[:3], truth[:3])
    copy = StepTimeModel.from_arrays(copy.to_arrays())
    with pytest.warns(FarFromTrainingWarning, match="of 6 jobs"):
        found = copy.predict_all(grown, [90])
    one_factor = model.predict(grown) * np.median(truth[:3] / model.predict(grown)[:3])
    assert np.abs(found[:, 0] / truth - 1).max() < 0.1 < 0.5 * abs(one_factor[-1] / truth[-1] - 1)
    assert ((found[:, 1] < truth) & (truth < found[:, 2])).all()
    other = grown.assign(**{"work:start": 2e-3})
    assert (copy.predict(other) > 1.5 * model.predict(other)).all()


@pytest.mark.parametrize("stored", [False, True])
def test_measurements_of_a_job_in_two_calls_count_as_in_one(model: StepTimeModel, stored: bool) -> None:
    work = [f"work:conv_3x3:{name}" for name in ("flops", "bytes")]
    jobs = simulate(np.random.default_rng(3)).iloc[[0, 0]].reset_index(drop=True).assign(launches=100.0)
    jobs[work] = jobs[work].mul([0.01, 10.0], axis=0)
    y = model.predict(jobs) * [2.0, 1.0]
    once, twice = (StepTimeModel.from_arrays(model.to_arrays()) for _ in range(2))
    once.calibrate(jobs, y)
    twice.calibrate(jobs[:1], y[:1])
    before = twice.to_arrays()
    assert twice.predict(jobs)[0] == pytest.approx(y[0], rel=0.1)
    twice = StepTimeModel.from_arrays(before) if stored else twice
    twice.calibrate(jobs[1:], y[1:])
    np.testing.assert_allclose(twice.predict(jobs), once.predict(jobs), rtol=0.05)
    np.testing.assert_array_equal(StepTimeModel.from_arrays(twice.to_arrays()).predict(jobs), twice.predict(jobs))
    other = jobs.assign(**{"work:start": 2e-3, "launches": 1e3})  # whose host is another one
    found = twice.predict(jobs)
    np.testing.assert_array_equal(twice.calibrate(other, 9 * y).predict(jobs), found)
    # As of a version that did not store what was measured of a job.
    old = {name: array for name, array in before.items() if name not in ("job_of_row", "job_rows")}
    assert StepTimeModel.from_arrays(old).predict(jobs)[0] == pytest.approx(y[0], rel=0.1)


def on_gpus(rows: pd.DataFrame, count: int, exchange_s: float = 1e-3) -> pd.DataFrame:
    """The rows on several GPUs, whose gradients take a while to exchange."""
    return rows.assign(n_gpus=count, **{"work:allreduce": exchange_s * (count > 1)})


def test_a_step_on_several_gpus_is_no_faster_than_on_one(rows: pd.DataFrame) -> None:
    """Those of two GPUs in training were measured on a quicker machine."""
    quick = on_gpus(rows, 2).assign(y=0.7 * rows["y"])
    model = fitted(pd.concat([on_gpus(rows, 1), quick], ignore_index=True))
    assert (model.predict(on_gpus(rows, 2)) / model.predict(on_gpus(rows, 1)) > 1 - 1e-9).all()


def test_a_step_on_several_gpus_of_a_calibrated_device_is_no_faster_than_on_one(
    model: StepTimeModel, rows: pd.DataFrame
) -> None:
    """What slow steps on one GPU say of a device fades with more of them."""
    copy = StepTimeModel.from_arrays(model.to_arrays())
    slow = rows[rows["device_name"] == "slow"]
    copy.calibrate(slow[:20], 2 * slow["y"][:20], jobs=False)
    one, *others = (copy.predict(on_gpus(slow[20:], count, 1e-6)) for count in (1, 2, 8, 64))
    assert np.median(one / model.predict(slow[20:])) > 1.5
    for found in others:
        assert (found / one > 1 - 1e-9).all()
    # A job of its own stays as it was measured.
    job, quick = on_gpus(slow[20:21], 8), 0.5 * one[:1]
    assert copy.calibrate(job, quick).predict(job) == pytest.approx(quick, rel=0.05)


def test_a_job_measured_on_some_gpus_is_known_on_others(model: StepTimeModel, rows: pd.DataFrame) -> None:
    jobs = pd.concat([on_gpus(rows.iloc[[0]], count, 0.5) for count in (1, 2, 8)], ignore_index=True)
    plain = model.predict(jobs)
    one = StepTimeModel.from_arrays(model.to_arrays()).calibrate(jobs[:1], 3 * plain[:1])
    work = one.predict(jobs) - 0.5 * (jobs["n_gpus"] > 1)
    np.testing.assert_allclose(work, 3 * plain[0], rtol=0.1)
    # Links that are slow besides, as two and more GPUs tell.
    both = StepTimeModel.from_arrays(model.to_arrays()).calibrate(jobs[:2], [plain[0], plain[0] + 4])
    np.testing.assert_allclose(both.predict(jobs), plain[0] + [0, 4, 4], rtol=0.1)


def test_jobs_calibrated_before_exchange_was_apart_are_still_known(model: StepTimeModel, rows: pd.DataFrame) -> None:
    copy = StepTimeModel.from_arrays(model.to_arrays()).calibrate(rows[:3], 3 * rows["y"][:3])
    arrays = copy.to_arrays()
    kept = [0, 1, 3]
    arrays |= {
        "job_factors": arrays["job_factors"][:, kept],
        "job_covariances": arrays["job_covariances"][:, kept][:, :, kept],
        "job_rows": arrays["job_rows"][:, [0, 1, 3, 4, 5]],
    }
    old = StepTimeModel.from_arrays(arrays)
    np.testing.assert_allclose(old.predict_all(rows, [90]), copy.predict_all(rows, [90]), rtol=1e-6)


def test_a_job_is_recognised_however_its_table_was_stored(model: StepTimeModel, rows: pd.DataFrame) -> None:
    few = rows.iloc[:3].assign(framework_version=["2.4", None, np.nan])
    copy = StepTimeModel.from_arrays(model.to_arrays()).calibrate(few, 3 * few["y"])
    stored = few.astype({"n_gpus": float, "optimizer_states": int, "device_name": "category", "precision": "string"})
    stored["framework_version"] = stored["framework_version"].astype("string")
    np.testing.assert_allclose(copy.predict(stored), copy.predict(few))
    known = set(copy.calibration_.jobs)
    assert set(copy.calibrate(stored, 3 * few["y"]).calibration_.jobs) == known


def test_factors_of_one_job_are_shrunk_unless_large(model: StepTimeModel, rows: pd.DataFrame) -> None:
    copy, moved = StepTimeModel.from_arrays(model.to_arrays()), []
    plain, others = model.predict(rows.iloc[[0]]), rows[rows["device_name"] == rows["device_name"].iloc[0]].iloc[1:]
    for by in (1.0, 1.05, 3.0):
        copy.calibrate(rows.iloc[[0]], plain * by)
        moved.append(float(np.median(np.log(copy.predict(others) / model.predict(others)))))
    assert moved[0] == pytest.approx(0, abs=1e-9)
    assert 0 < moved[1] < np.log(1.05)
    assert 0.8 * np.log(3) < moved[2] < np.log(3)


def test_batch_sizes_of_one_job_count_as_one_observation(model: StepTimeModel, rows: pd.DataFrame) -> None:
    factors = []
    for n in (1, 6):
        copy = StepTimeModel.from_arrays(model.to_arrays())
        again, others = rows.iloc[[0] * n], rows[rows["device_name"] == rows["device_name"].iloc[0]].iloc[1:]
        copy.calibrate(again, 1.3 * model.predict(again))
        factors.append(np.log(copy.predict(others) / model.predict(others)))
    # More so than one measurement only as far as that has noise.
    assert (factors[0] > 0).all()
    np.testing.assert_allclose(factors[1], factors[0], rtol=0.2)


@pytest.mark.slow
def test_intervals_cover_held_out_groups() -> None:
    table = simulate(np.random.default_rng(3), 480)
    inside = []
    for held_out in range(0, 12, 3):
        test = table["family"].isin([held_out, held_out + 1])
        low, high = fitted(table[~test]).predict_interval(table[test], 90).T
        inside.extend((table["y"][test] >= low) & (table["y"][test] <= high))
    assert 0.85 <= np.mean(inside) <= 0.995


def test_intervals_widen_and_warn_far_from_training(model: StepTimeModel, rows: pd.DataFrame) -> None:
    strange = rows.iloc[:5].assign(precision="bf16", framework="keras", layout="channels_last", device_year=2000.0)
    low, high = model.predict_interval(rows.iloc[:5]).T
    with pytest.warns(FarFromTrainingWarning, match="5 of 5 jobs"):
        far_low, far_high = model.predict_interval(strange).T
    assert (far_high / far_low > high / low).all()


def test_work_that_was_never_measured_has_a_price_and_is_far(model: StepTimeModel, rows: pd.DataFrame) -> None:
    attention = rows.assign(**{"work:attention:flops": 1.0})
    with pytest.warns(FarFromTrainingWarning, match="240 of 240 jobs.* New is the share of attention"):
        low, high = model.predict_interval(attention).T
    assert (model.predict(attention) > 1.0).all()
    usual = np.divide(*model.predict_interval(rows).T[::-1])
    assert np.log(high / low).mean() > 1.5 * np.log(usual).mean()
    assert (high / low > usual).mean() > 0.9


def test_saved_and_loaded_bit_for_bit(model: StepTimeModel, rows: pd.DataFrame) -> None:
    file = io.BytesIO()
    np.savez(file, **model.to_arrays())
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        loaded = StepTimeModel.from_arrays(arrays)
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(loaded.predict_interval(rows), model.predict_interval(rows))


@pytest.mark.slow
def test_refitting_is_deterministic(model: StepTimeModel, rows: pd.DataFrame) -> None:
    again = clone(model).fit(rows.drop(columns=["y", "family"]), rows["y"], groups=rows["family"])
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


def test_names_and_targets_do_not_affect_predictions(model: StepTimeModel, rows: pd.DataFrame) -> None:
    renamed = rows.assign(y=-1.0, family="x", device_name="nobody knows")
    np.testing.assert_array_equal(model.predict(renamed), model.predict(rows))


def test_at_most_max_rows_are_used(rows: pd.DataFrame) -> None:
    small = StepTimeModel(max_rows=50).fit(rows, rows["y"], groups=rows["family"])
    assert len(small.dual_coef_) == 50


def test_invalid_data_are_rejected(rows: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="no columns of work"):
        StepTimeModel().fit(rows.loc[:, ~rows.columns.str.startswith("work:")], rows["y"])
    with pytest.raises(InputError, match="2 values that are no times"):
        StepTimeModel().fit(rows, rows["y"].mask(rows.index < 2, -1.0))


def test_of_a_single_group_intervals_are_wider_and_a_warning_says_so(rows):
    few = rows.head(40)
    with pytest.warns(UserWarning, match="single group"):
        model = StepTimeModel().fit(few, few["y"], np.zeros(40))
    same = StepTimeModel().fit(few, few["y"])
    found, narrow = (np.log(one.predict_interval(few)) @ [-1.0, 1.0] for one in (model, same))
    assert (found > 1.5 * narrow).all()


def test_of_networks_unlike_all_others_only_effects_of_device_and_stack_are_known() -> None:
    rng = np.random.default_rng(0)
    stack = np.repeat([0.0, 1.0], 50)[:, None]
    inputs = [rng.normal(size=(100, 3)), np.zeros((100, 1)), 0.0 * stack]
    skewed = rng.exponential(size=100) - np.log(2.0)  # its median is 0, not its mean
    far = [network + 100.0 * (part == 0) for part, network in enumerate(inputs)]
    dual_coef, held_out, _ = gaussian_process.fit(inputs, skewed, np.arange(100))
    np.testing.assert_allclose(gaussian_process.kernel(far, inputs)[1] @ dual_coef, 0.0, atol=1e-9)
    assert abs(held_out).max() > 0.1  # of others it says more
    inputs[2], far[2] = 4.0 * stack, 4.0 * stack
    dual_coef, *_ = gaussian_process.fit(inputs, skewed + stack[:, 0], np.arange(100))
    found = gaussian_process.kernel(far, inputs)[1] @ dual_coef
    assert 0.4 < found[50] - found[0] < 1.2


def test_distance_adds_those_of_network_device_and_stack() -> None:
    job = [np.zeros((1, 2)), np.zeros((1, 1)), np.zeros((1, 1))]
    other = [np.array([[0.7, 0.0]]), np.array([[24.0]]), np.array([[12.0]])]
    assert gaussian_process.distance(gaussian_process.kernel(other, job)[0]) == pytest.approx(1.0 + 2.0 + 3.0)
    assert gaussian_process.distance(gaussian_process.kernel(job, job)[0]) == pytest.approx(0.0)
