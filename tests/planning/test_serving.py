"""Serving: replicas that follow requests, as a part of the demand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand import Serving
from gpudemand._validation import InputError
from gpudemand.planning.programmes import add_programmes

BEGIN, END = pd.Timestamp("2026-03-02", tz="UTC"), pd.Timestamp("2026-03-30", tz="UTC")
DAYS = pd.Series(pd.date_range(BEGIN, END, inclusive="left"))


@pytest.mark.parametrize(
    ("requests", "options", "gpus"),
    [
        (100, {"throughput": 10}, 10),
        (101, {"throughput": 10}, 11),
        (100, {"throughput": 10, "headroom": 0.2}, 12),
        (100, {"throughput": 10, "headroom": 0.21, "gpus_per_replica": 8}, 104),
        (0, {"throughput": 10}, 1),
        (0, {"throughput": 10, "min_replicas": 0}, 0),
        (0.5, {"throughput": 10, "min_replicas": 3, "gpus_per_replica": 0.25}, 0.75),
        (0.3, {"throughput": 0.1}, 3),
    ],
)
def test_replicas_are_what_the_requests_take(requests, options, gpus):
    serving = Serving("chat", requests, BEGIN, END, **options)
    np.testing.assert_allclose(serving.mean_gpus(DAYS), gpus)
    np.testing.assert_allclose(serving.peak_gpus(DAYS), gpus)
    assert serving.gpu_hours == pytest.approx(gpus * 28 * 24)


def test_they_follow_the_requests_within_a_bin():
    hours = pd.date_range(BEGIN - pd.Timedelta("1D"), END, freq="h")
    requests = pd.Series(10.0 + 90.0 * ((hours.hour >= 9) & (hours.hour < 17)), index=hours)
    serving = Serving("chat", requests, BEGIN, END, throughput=10)
    np.testing.assert_allclose(serving.mean_gpus(DAYS), (16 * 1 + 8 * 10) / 24)
    np.testing.assert_allclose(serving.peak_gpus(DAYS), 10)
    by_hour = pd.Series(pd.date_range(BEGIN, periods=48, freq="h"))
    np.testing.assert_allclose(serving.mean_gpus(by_hour), serving.peak_gpus(by_hour))
    assert serving.mean_gpus(by_hour).sum() == pytest.approx(48 / 24 * (16 + 80))


def test_nothing_is_held_outside_of_the_period():
    serving = Serving("chat", 5, BEGIN + pd.Timedelta("12h"), END - pd.Timedelta("1D"), throughput=1)
    around = pd.Series(pd.date_range(BEGIN - pd.Timedelta("2D"), END + pd.Timedelta("2D")))
    mean, peak = serving.mean_gpus(around), serving.peak_gpus(around)
    assert mean[:4].tolist() == [0, 0, 2.5, 5]
    assert peak[:4].tolist() == [0, 0, 5, 5]
    assert not mean[-4:].any()
    assert not peak[-4:].any()


def test_its_jobs_hold_the_same_gpu_hours():
    times = pd.date_range(BEGIN - pd.Timedelta("5h"), END, freq="7h")
    requests = pd.Series(np.random.default_rng(0).uniform(0, 50, len(times)), index=times)
    serving = Serving("chat", requests, BEGIN, END, throughput=3, gpus_per_replica=2, group="web")
    jobs = serving.jobs()
    held = ((jobs["end"] - jobs["start"]).dt.total_seconds() / 3600 * jobs["gpus"]).sum()
    assert held == pytest.approx(serving.gpu_hours)
    assert jobs["submit"].min() == BEGIN
    assert jobs["end"].max() == END
    assert (jobs["end"] - jobs["start"]).max() <= pd.Timedelta("1D")
    assert set(jobs["group"]) == {"web"}


def test_what_is_uncertain_widens_the_forecast():
    forecast = pd.DataFrame({"unique_id": "all", "ds": DAYS, "M": 9.0, "M-lo-90": 8.0, "M-hi-90": 10.0})
    known, open_one = (Serving("chat", 1000, BEGIN, END, throughput=10, spread=spread) for spread in (0.0, 0.3))
    exact, wide = (add_programmes(forecast, [serving], "all") for serving in (known, open_one))
    np.testing.assert_allclose(exact[["M", "M-lo-90", "M-hi-90"]], [[109, 108, 110]] * len(DAYS))
    np.testing.assert_allclose(wide["M-hi-90"] - wide["M"], np.hypot(1, 30))
    _, low, high = open_one.gpus_range(DAYS)
    assert (low[0], high[0]) == (70, 130)


def test_a_peak_takes_the_peak():
    requests = pd.Series([10.0, 100.0], index=[BEGIN, BEGIN + pd.Timedelta("23h")])
    serving = Serving("chat", requests, BEGIN, BEGIN + pd.Timedelta("1D"), throughput=10)
    forecast = pd.DataFrame({"unique_id": "all", "ds": DAYS[:2], "M": 0.0, "M-lo-90": 0.0, "M-hi-90": 0.0})
    mean, peak = (add_programmes(forecast, [serving], "all", peak=peak)["M"] for peak in (False, True))
    assert mean.tolist() == [pytest.approx((23 + 10) / 24), 0]
    assert peak.tolist() == [10, 0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"throughput": 0}, "throughput of 'chat'"),
        ({"requests_per_second": -1}, "requests_per_second of 'chat'"),
        ({"requests_per_second": pd.Series([1.0], index=[pd.Timestamp("2026-03-01")])}, "times with a zone"),
        ({"requests_per_second": pd.Series([-1.0], index=[BEGIN])}, "requests_per_second of 'chat'"),
        ({"gpus_per_replica": 0}, "gpus_per_replica of 'chat'"),
        ({"headroom": -0.1}, "headroom of 'chat'"),
        ({"min_replicas": 1.5}, "min_replicas of 'chat'"),
        ({"spread": 1.1}, "spread of 'chat'"),
        ({"end": "2026-01-01"}, "ends .* before it starts"),
    ],
)
def test_nonsense_is_one_sentence(changed, reason):
    good = {"name": "chat", "requests_per_second": 3, "start": BEGIN, "end": END, "throughput": 1}
    with pytest.raises(InputError, match=reason) as caught:
        Serving(**{**good, **changed})
    assert "\n" not in str(caught.value)
