"""Work to come that is in no log: GPU-hours, jobs, and its share in a forecast."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand import CostModel, Programme, TrainingJob
from gpudemand._validation import InputError
from gpudemand.cost import networks
from gpudemand.planning.programmes import add_programmes

BEGIN, END = pd.Timestamp("2026-03-01", tz="UTC"), pd.Timestamp("2026-03-31", tz="UTC")


def test_its_jobs_and_its_mean_hold_the_same_gpu_hours():
    programme = Programme("tuning", 50, BEGIN, END, hours=5, gpus=4, user="ada")
    jobs = programme.jobs()
    held = ((jobs["end"] - jobs["start"]).dt.total_seconds() / 3600 * jobs["gpus"]).sum()
    ds = pd.Series(pd.date_range(BEGIN - pd.Timedelta("3D"), periods=40))
    assert held == pytest.approx(programme.gpu_hours) == 1000
    assert 24 * programme.mean_gpus(ds).sum() == pytest.approx(1000)
    assert jobs["submit"].min() >= BEGIN
    assert jobs["end"].max() <= END
    assert set(jobs["user"]) == {"ada"}


def test_the_last_month_has_all_of_its_days():
    late = Programme("late", 1, "2026-03-29", "2026-04-01", hours=72, gpus=100)
    ds = pd.Series(pd.date_range("2026-02-01", periods=2, freq="MS", tz="UTC"))
    np.testing.assert_allclose(late.mean_gpus(ds), [0, 100 * 3 / 31])


def test_a_training_job_is_priced_by_the_cost_model():
    pytest.importorskip("torch")
    shape = (3, 32, 32)
    job = TrainingJob(networks.build("resnet18", input_shape=shape), shape, batch_size=16, device="AMD EPYC")
    programme = Programme("resnet", 10, BEGIN, END, job=job, steps=3600)
    row = CostModel.load().predict(job).iloc[0]
    assert programme.run.hours == pytest.approx(row["step_time_s"])
    assert programme.run.low < programme.run.hours < programme.run.high
    assert programme.gpu_hours == pytest.approx(10 * row["step_time_s"])


@pytest.mark.slow
def test_steps_on_a_gpu_take_as_long_as_in_training_scripts_unless_own_runs_tell():
    pytest.importorskip("torch")
    shape = (3, 32, 32)
    job = TrainingJob(networks.build("resnet18", input_shape=shape), shape, batch_size=64, device="A100")
    bare, script = (
        CostModel.load().predict(job, training_script=flag).iloc[0]["step_time_s"] for flag in (False, True)
    )
    hours = [Programme("new", 10, BEGIN, END, job=job, steps=3600, ratio=r).run.hours for r in (None, (1.1, 1.0, 1.2))]
    assert hours == pytest.approx([script, 1.1 * bare])
    assert script > 1.05 * bare


def test_errors_of_its_cost_widen_the_forecast():
    pytest.importorskip("torch")
    shape = (3, 32, 32)
    job = TrainingJob(networks.build("resnet18", input_shape=shape), shape, batch_size=16, device="AMD EPYC")
    priced = Programme("priced", 10_000, BEGIN, END, job=job, steps=3600)
    known = Programme("known", 10_000, BEGIN, END, hours=priced.run.hours, gpus=1)
    ds = pd.date_range(BEGIN, periods=5)
    forecast = pd.DataFrame({"unique_id": "all", "ds": ds, "M": 9.0, "M-lo-90": 8.0, "M-hi-90": 10.0})
    wide, narrow = (add_programmes(forecast, [programme], "all") for programme in (priced, known))
    np.testing.assert_allclose(wide["M"], narrow["M"])
    np.testing.assert_allclose(narrow["M-hi-90"] - narrow["M-lo-90"], 2.0)
    assert (wide["M-hi-90"] - wide["M-lo-90"] > 2.0).all()


@pytest.mark.parametrize("dtype", ["int64", "Int64", "float32"])
def test_it_adds_fractions_to_whole_numbers(dtype):
    work = Programme("work", 1, BEGIN, END, hours=24, gpus=1)
    ds = pd.date_range(BEGIN, periods=2)
    forecast = pd.DataFrame({"unique_id": "all", "ds": ds, "M": 9, "M-mean": 9, "M-lo-90": 8, "M-hi-90": 10})
    names = ["M", "M-mean", "M-lo-90", "M-hi-90"]
    added = add_programmes(forecast.astype(dict.fromkeys(names, dtype)), [work], "all")
    pd.testing.assert_frame_equal(added, add_programmes(forecast.astype(dict.fromkeys(names, float)), [work], "all"))
    np.testing.assert_allclose(added["M"], 9 + 1 / 30)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"runs": 0}, "runs of 'new' must be"),
        ({"hours": None}, "needs job= and steps=, or hours= and gpus="),
        ({"gpus": -1}, "gpus of 'new' must be"),
        ({"end": "2026-01-01"}, "ends .* before it starts"),
        ({"steps": 10}, "needs job= and steps=, or hours="),
        ({"hours": 10_000}, "takes 1e.04 h, more than .* give a later end"),
    ],
)
def test_nonsense_is_one_sentence(changed, reason):
    good = {"name": "new", "runs": 3, "start": BEGIN, "end": END, "hours": 1, "gpus": 2}
    with pytest.raises(InputError, match=reason):
        Programme(**{**good, **changed})
