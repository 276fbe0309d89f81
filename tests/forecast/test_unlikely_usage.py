"""Tables of usage that are likely incomplete or wrong: a warning or an error, whose advice works."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    HorizonForecaster,
    LagRegression,
    SeasonalNaive,
    TemporalFactorization,
    UnlikelyUsageWarning,
    cross_validation,
)

DAYS = pd.date_range("2026-01-05", periods=84)
MODELS = [CombinedForecaster(), ETS(), SeasonalNaive(), TemporalFactorization(n_factors=1)]
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def weekly(days=DAYS, names=("a", "b", "c")):
    rng = np.random.default_rng(0)
    wave = 50 + 20 * np.sin(2 * np.pi * np.arange(len(days)) / 7)
    tables = [pd.DataFrame({"unique_id": n, "ds": days, "y": wave + rng.normal(size=len(days))}) for n in names]
    return pd.concat(tables, ignore_index=True)


USAGE = weekly()
IS_A = USAGE["unique_id"] == "a"


def path(model, usage, h=7, **options):
    """Forecast of the first series."""
    found = model.fit(usage, **options).predict(h)
    return found[found["unique_id"] == "a"].iloc[:, 2].to_numpy()


def heeded(message, usage):
    """The table after the advice of a message."""
    code = re.search(r"usage = (.*?)\.$", message)
    return eval(code[1], {"gd": gd, "usage": usage})


@every_model
def test_a_user_who_left_is_named_and_is_zero_if_told_so(model):
    left = USAGE[~(IS_A & (USAGE["ds"] > "2026-02-20"))]
    message = "1 of 3 series end before 2026-03-29 00:00:00, the first 'a' at 2026-02-20 00:00:00"
    with pytest.warns(UnlikelyUsageWarning, match=message) as warned:
        assert path(model, left).max() > 40
    told = heeded(str(warned[0].message), left)
    assert len(told) == len(USAGE)
    assert path(model, told).max() < 30
    assert path(SeasonalNaive(), told).max() == 0


def test_a_user_whose_values_end_early_is_named_after_a_season_without():
    for last, is_named in (("2026-03-25", False), ("2026-03-20", True)):
        unknown = USAGE.assign(y=USAGE["y"].mask(IS_A & (USAGE["ds"] > last)))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            SeasonalNaive().fit(unknown)
        assert bool(warned) == is_named


def test_users_who_begin_late_or_were_not_recorded_for_a_day_are_ordinary():
    SeasonalNaive().fit(USAGE[~(IS_A & (USAGE["ds"] < "2026-03-01"))])
    SeasonalNaive().fit(USAGE.assign(y=USAGE["y"].mask(USAGE["ds"] == DAYS[-1])))
    SeasonalNaive().fit(USAGE.assign(y=USAGE["y"].mask(USAGE.index.isin([3, 4, 100]))))


def test_bins_without_a_row_are_counted_and_the_season_keeps_its_place():
    monday = pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": 50.0 + 40 * (DAYS.day_of_week == 0)})
    usage = pd.concat([monday, monday.assign(unique_id="b")], ignore_index=True)
    holes = usage.drop(index=[36, 44, 57])
    with pytest.warns(
        UnlikelyUsageWarning, match="^3 bins inside series have no row, the first at 'a', 2026-02-10"
    ) as w:
        np.testing.assert_array_equal(path(SeasonalNaive(), holes), [90, 50, 50, 50, 50, 50, 50])
    assert heeded(str(w[0].message), holes)["y"].eq(0).sum() == 3
    with pytest.warns(UnlikelyUsageWarning, match="^3 bins have no row in any series, the first at 2026-02-10"):
        np.testing.assert_array_equal(path(SeasonalNaive(), holes[:81]), [90, 50, 50, 50, 50, 50, 50])


@every_model
def test_business_days_have_no_weekends(model):
    days = pd.bdate_range("2026-01-05", periods=60)
    usage = pd.DataFrame({"unique_id": "a", "ds": days, "y": 10.0 + np.arange(60) % 5})
    found = model.fit(usage).predict(6)
    assert found["ds"].tolist() == pd.bdate_range("2026-03-30", periods=6).tolist()
    np.testing.assert_allclose(found.iloc[:, 2], [10, 11, 12, 13, 14, 10], atol=0.2)
    with pytest.warns(
        UnlikelyUsageWarning, match="^27% of the bins have no row in any series, the first at 2026-01-10"
    ):
        SeasonalNaive().fit(usage, freq="D")


def test_hours_that_are_never_recorded_are_named():
    hours = pd.date_range("2026-01-05", periods=24 * 21, freq="h")
    usage = pd.DataFrame({"unique_id": "a", "ds": hours, "y": 1.0})[(hours.hour >= 8) & (hours.hour < 17)]
    with pytest.warns(
        UnlikelyUsageWarning, match="have no row in any series, the first at 2026-01-05 17:00.* season_len"
    ):
        SeasonalNaive().fit(usage)
    open_hours = usage.assign(ds=pd.date_range("2026-01-05", periods=len(usage), freq="h"))
    SeasonalNaive(season_length=9).fit(open_hours)


@pytest.mark.parametrize(
    ("ds", "first"),
    [
        (np.arange(84), "2026-01-01"),
        (np.arange(84.0), "2026-01-01"),
        (DAYS.astype("int64"), "2026-01-05"),
        (DAYS.astype("int64") // 1000 ** (1 if DAYS.unit == "us" else 2), "2026-01-05"),
        (np.array([int(day.timestamp()) for day in DAYS]), "2026-01-05"),
        (np.array([int(day.timestamp()) for day in DAYS], dtype=float), "2026-01-05"),
        (DAYS.strftime("%Y%m%d").astype(int), "2026-01-05"),
        (pd.Index(np.arange(190001, 190013)), "1900-01-01"),
        (pd.Index(np.arange(1940, 2024)), "1940-01-01"),
        (DAYS.astype(str), "2026-01-05"),
        (pd.Index(DAYS.date, dtype=object), "2026-01-05"),
        (DAYS.to_period("D"), "2026-01-05"),
        (pd.to_timedelta(np.arange(84), unit="D"), "2026-01-01"),
        (pd.Index([t.tz_localize("UTC") if i % 2 else t for i, t in enumerate(DAYS)], dtype=object), "2026-01-05"),
        (pd.Index([t.tz_localize("UTC" if i % 2 else "Asia/Tokyo") for i, t in enumerate(DAYS)]), "2026-01-04"),
    ],
)
def test_the_advice_on_what_is_no_datetime_works(ds, first):
    usage = pd.DataFrame({"unique_id": "a", "ds": ds, "y": 1.0})
    with pytest.raises(InputError, match="must hold datetimes") as error:
        SeasonalNaive().fit(usage)
    code = (
        str(error.value).split(": ", 1)[1]
        if "durations" not in str(error.value)
        else str(error.value).split("time, ")[1]
    )
    times = eval(code.split(", with your")[0].rstrip("."), {"pd": pd, "usage": usage})
    assert times.iloc[0].date() == pd.Timestamp(first).date()
    assert times.nunique() == len(usage)


@pytest.mark.parametrize("numbers", [np.arange(84), 1_767_571_200 + 86_400 * np.arange(84)])
def test_numbers_that_were_converted_without_their_unit_are_refused(numbers):
    usage = pd.DataFrame({"unique_id": "a", "ds": pd.to_datetime(numbers), "y": 1.0})
    with pytest.raises(InputError, match=r"ns apart, from 1970-01-01 .* without their unit"):
        SeasonalNaive().fit(usage)


def test_columns_that_are_not_used_are_named():
    usage = USAGE.assign(price=1.0, holiday=False)
    with pytest.warns(UnlikelyUsageWarning, match="^The columns price, holiday of usage are not used") as warned:
        SeasonalNaive().fit(usage)
    assert warned[0].filename == __file__
    with pytest.warns(UnlikelyUsageWarning, match="price") as warned:
        cross_validation([SeasonalNaive(), ETS()], usage, h=7, n_windows=3)
    assert [warning.filename for warning in warned] == [__file__]


def test_a_value_beyond_all_others_is_named_and_one_beyond_computing_refused():
    wrong = USAGE["y"].mask(USAGE.index == 16, 1e12)
    with pytest.warns(UnlikelyUsageWarning, match="'a' with 1e[+]12 at 2026-01-21 00:00:00") as warned:
        CombinedForecaster().fit(USAGE.assign(y=wrong))
    assert len(warned) == 1
    CombinedForecaster().fit(USAGE.assign(y=wrong.mask(wrong == 1e12)))
    with pytest.raises(InputError, match=r"is 1e\+300 for 'a' at 2026-01-21 00:00:00"):
        CombinedForecaster().fit(USAGE.assign(y=wrong.mask(wrong == 1e12, 1e300)))


def test_rare_large_jobs_are_ordinary():
    y = np.zeros(84)
    y[::9], y[5] = 0.1, 900.0
    SeasonalNaive().fit(pd.DataFrame({"unique_id": "a", "ds": DAYS, "y": y}))


def test_users_without_use_stay_at_zero_in_a_hierarchy():
    idle = USAGE.assign(unique_id="x/" + USAGE["unique_id"], y=USAGE["y"].where(USAGE["unique_id"] == "c", 0.0))
    nodes, summing, _ = gd.aggregate_usage(idle, "team/user")
    forecast = SeasonalNaive().fit(nodes).predict(7)
    found = gd.reconcile(forecast, summing, cross_validation(SeasonalNaive(), nodes, h=7, n_windows=4))
    wide = found.pivot(index="ds", columns="unique_id", values="SeasonalNaive")
    np.testing.assert_allclose(wide[["x/a", "x/b"]], 0, atol=1e-9)
    np.testing.assert_allclose(wide["x/c"], forecast.loc[forecast["unique_id"] == "x/c", "SeasonalNaive"], rtol=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.to_timedelta(USAGE["y"], unit="h"), "holds durations: (.*) makes hours"),
        (pd.to_timedelta(USAGE["y"], unit="h").astype(object), "holds durations"),
        (USAGE["ds"], "holds times, not numbers"),
        (USAGE["y"] + 1j, "holds complex numbers"),
    ],
)
def test_what_pandas_would_turn_into_other_numbers_is_refused(values, message):
    with pytest.raises(InputError, match=message) as error:
        SeasonalNaive().fit(USAGE.assign(y=values))
    if code := re.search(r": (.*) makes", str(error.value)):
        usage = USAGE.assign(y=values.astype("timedelta64[ns]"))
        np.testing.assert_allclose(eval(code[1], {"usage": usage}), USAGE["y"])


def test_names_that_read_alike_are_told_apart_or_refused():
    with pytest.raises(InputError, match="holds 1 and the same name as another type"):
        SeasonalNaive().fit(USAGE.assign(unique_id=USAGE["unique_id"].map({"a": 1, "b": "1", "c": "c"})))
    SeasonalNaive().fit(USAGE.assign(unique_id=USAGE["unique_id"].map({"a": 1, "b": "b", "c": "c"})))
    with pytest.raises(InputError, match="no names, such as lists"):
        SeasonalNaive().fit(USAGE.assign(unique_id=[[name] for name in USAGE["unique_id"]]))
    with pytest.warns(UnlikelyUsageWarning, match="2 names differ by spaces around them only, the first 'a'"):
        SeasonalNaive().fit(USAGE.assign(unique_id=USAGE["unique_id"].map({"a": "a", "b": "a ", "c": "c"})))


def test_one_column_or_names_in_the_index_are_refused_with_a_cure_that_works():
    indexed = USAGE.set_index(["unique_id", "ds"])
    for table in (indexed["y"], indexed, USAGE.set_index("unique_id")):
        with pytest.raises(InputError, match=r"reset_index\(\)"):
            SeasonalNaive().fit(table)
        SeasonalNaive().fit(table.reset_index())


@pytest.mark.parametrize("freq", ["ME", "QE", "YE"])
def test_ends_of_months_are_refused_with_a_cure_that_works(freq):
    usage = weekly(pd.date_range("2020-01-05", periods=12, freq=freq))
    with pytest.raises(InputError, match="ends of months") as error:
        SeasonalNaive().fit(usage)
    code = str(error.value).split("start: ")[1].rstrip(".")
    found = SeasonalNaive().fit(usage.assign(ds=eval(code, {"usage": usage})))
    assert found.panel_.freq.freqstr.startswith(freq[0] + "S")


@pytest.mark.parametrize("unit", ["s", "us"])
def test_times_that_are_not_binned_are_refused(unit):
    """The most frequent step is chance, and its bins would take all memory."""
    stray = pd.to_timedelta(np.random.default_rng(0).integers(0, 50, len(USAGE)), unit=unit)
    with pytest.raises(InputError, match="nearly all bins of freq=") as error:
        SeasonalNaive().fit(USAGE.assign(ds=USAGE["ds"] + stray))
    assert "dt.floor('D')" in str(error.value)
    with pytest.raises(InputError, match="nearly all bins of freq='s'"):
        SeasonalNaive().fit(USAGE, freq="s")
    with pytest.raises(InputError, match=r"from 1970-01-01 .* repair times that are far"):
        SeasonalNaive().fit(USAGE.assign(ds=USAGE["ds"].mask(USAGE.index == 3, pd.Timestamp("1970-01-01"))))


def test_midnights_of_another_zone_are_refused_with_a_cure_that_works():
    days = pd.date_range("2026-03-01", periods=60, tz="UTC").tz_convert("Europe/Berlin")
    usage = pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.0})
    with pytest.raises(InputError, match=r"UTC: (.*)\.$") as error:
        SeasonalNaive().fit(usage)
    SeasonalNaive().fit(usage.assign(ds=eval(str(error.value).split("UTC: ")[1].rstrip("."), {"usage": usage})))


@every_model
@pytest.mark.parametrize("n_days", [1, 2, 5])
def test_a_user_of_a_few_equal_days_is_not_certain(model, n_days):
    new = pd.DataFrame({"unique_id": "new", "ds": DAYS[-n_days:], "y": 33.0})
    found = model.fit(pd.concat([USAGE, new])).predict(3, level=[80])
    width = (found.filter(like="hi-80") - found.filter(like="lo-80").to_numpy())[found["unique_id"] == "new"]
    assert (width > 0.5).all(axis=None)
    assert (width < 33).all(axis=None)


FAR = 10**9


@pytest.mark.parametrize(
    ("model", "call"),
    [
        (CombinedForecaster(), lambda model: model.predict(FAR)),
        (CombinedForecaster(), lambda model: model.predict(FAR, mean=True)),
        (HorizonForecaster(), lambda model: model.predict_mean(FAR)),
        (SeasonalNaive(), lambda model: model.sample(FAR)),
        (SeasonalNaive(), lambda model: model.sample(1, n_samples=FAR)),
        (SeasonalNaive(), lambda model: model.forecast_from(model.panel_, np.array([80]), FAR)),
        (SeasonalNaive(), lambda model: cross_validation(model, USAGE, h=1, n_windows=FAR)),
        (SeasonalNaive(), lambda model: cross_validation(model, USAGE, h=FAR, n_windows=1)),
    ],
)
def test_a_horizon_beyond_all_use_is_refused_before_it_is_computed(model, call):
    fitted = model.fit(USAGE)
    with pytest.raises(InputError, match=r"(h|n_samples) must be a whole number of at least 1 and at most|use|exceeds"):
        call(fitted)


@pytest.mark.parametrize(
    "model", [SeasonalNaive(1000), ETS(1000), LagRegression((7, 1000)), HorizonForecaster(season_length=FAR)]
)
def test_a_season_beyond_the_history_is_told(model):
    message = f"season_length={np.max(model.season_length)} is longer than the history of 84 bins"
    with pytest.warns(UnlikelyUsageWarning, match=message):
        assert np.isfinite(path(model, USAGE)).all()
    with pytest.warns(UnlikelyUsageWarning, match=message):
        cross_validation(model, USAGE, h=7, n_windows=1)


@pytest.mark.parametrize("labels", [[0, 1, 1], {"a": 0, "b": None, "c": 1}, {"a": 0, "b": 1}])
def test_labels_that_miss_a_user_are_refused(labels):
    with pytest.raises(InputError, match=r"give one to each|names no users"):
        gd.ClusterwiseForecaster(segmenter=labels).fit(USAGE)


def test_labels_of_all_users_are_taken():
    fitted = gd.ClusterwiseForecaster(segmenter={"a": 0, "b": 1, "c": 1}).fit(USAGE)
    assert fitted.labels_.index.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("options", [{"members": SeasonalNaive()}, {"members": []}, {"max_origins": 0}])
def test_options_of_a_combination_are_checked(options):
    with pytest.raises(InputError, match=r"members must be a list|max_origins"):
        CombinedForecaster(**options).fit(USAGE)
