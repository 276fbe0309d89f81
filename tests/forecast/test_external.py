"""Forecasters of other libraries, by fakes of both manners: columns, copies, regressors, and places where they go."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.forecast import EventForecaster, UnlikelyUsageWarning
from gpudemand.forecast.forecaster import protocol

DS = pd.date_range("2026-03-01", periods=60, tz="Europe/Berlin")
USAGE = pd.concat(
    [
        pd.DataFrame({"unique_id": "a", "ds": DS, "y": np.tile([1.0, 1, 1, 1, 1, 5, 9], 9)[:60]}),
        pd.DataFrame({"unique_id": "b", "ds": DS[10:], "y": np.arange(50.0)}),
    ],
    ignore_index=True,
)
EVENTS = pd.DataFrame({"event": ["e"], "start": ["2026-01-01"], "end": ["2026-01-02"]})
AHEAD = pd.date_range("2026-03-01", periods=70, tz="Europe/Berlin")


class SeriesManner:
    """sktime's manner: the newest value, and ten more on holidays."""

    fitted = 0

    def fit(self, y, X=None, fh=None):
        assert isinstance(y.index, pd.DatetimeIndex)
        assert y.index.freq is not None
        assert y.index.tz is None
        assert X is None or X.index.equals(y.index)
        self.last = y.iloc[-1]
        self.fitted += 1
        return self

    def predict(self, fh, X=None):
        assert list(fh) == list(range(1, len(fh) + 1))
        return pd.Series(self.last + (0 if X is None else 10 * X["holiday"].to_numpy()), index=range(len(fh)))


class TableManner:
    """statsforecast's manner, with intervals, which are left to ours."""

    def __init__(self, models=("Last",)):
        self.models = list(models)

    def fit(self, df):
        assert df["ds"].dt.tz is None
        self.last = df.groupby("unique_id").last()
        return self

    def predict(self, h, X_df=None, level=None):
        ids = np.repeat(self.last.index, h)
        ds = np.concatenate([pd.date_range(day, periods=h + 1)[1:] for day in self.last["ds"]])
        out = pd.DataFrame({"unique_id": ids, "ds": ds})
        for name in self.models:
            out[name] = self.last["y"].loc[ids].to_numpy()
        if X_df is not None:
            assert len(X_df) == len(out)
            out[self.models[0]] += 10 * X_df["holiday"].to_numpy()
        return out.assign(**{f"{self.models[0]}-lo-80": -1.0})


MANNERS = {"SeriesManner": SeriesManner(), "Last": TableManner()}


@pytest.mark.parametrize("name", MANNERS)
def test_they_forecast_like_ours(name):
    forecast = gd.ExternalForecaster(MANNERS[name]).fit(USAGE).predict(5, level=[80])
    naive = gd.Naive().fit(USAGE).predict(5)
    assert forecast.columns.tolist() == ["unique_id", "ds", name, f"{name}-lo-80", f"{name}-hi-80"]
    pd.testing.assert_frame_equal(forecast[["unique_id", "ds", name]], naive.rename(columns={"Naive": name}))
    assert (forecast[f"{name}-lo-80"] <= forecast[name]).all()
    assert (forecast[f"{name}-hi-80"] > forecast[name]).any()


@pytest.mark.parametrize("name", MANNERS)
def test_they_stand_in_a_backtest_and_a_combination(name):
    model = MANNERS[name]
    table = gd.cross_validation([model, gd.Naive()], USAGE, h=3, n_windows=3)
    np.testing.assert_array_equal(table[name], table["Naive"])
    pd.testing.assert_frame_equal(gd.cross_validation(model, USAGE, h=3, n_windows=3), table.drop(columns="Naive"))
    combined = gd.CombinedForecaster([model]).fit(USAGE).predict(3)
    np.testing.assert_allclose(combined["CombinedForecaster"], gd.Naive().fit(USAGE).predict(3)["Naive"])
    assert SeriesManner.fitted == 0
    assert getattr(model, "last", None) is None  # only copies are fitted


@pytest.mark.parametrize("name", MANNERS)
def test_regressors_known_ahead_pass_through(name):
    holiday = pd.DataFrame({"ds": AHEAD, "holiday": (AHEAD == "2026-05-01").astype(float)})
    model = gd.ExternalForecaster(MANNERS[name], regressors=holiday)
    forecast, plain = (one.fit(USAGE).predict(5)[name] for one in (model, gd.ExternalForecaster(MANNERS[name])))
    # Sixty days from March 1 end on April 29.
    np.testing.assert_allclose(forecast - plain, [0, 10, 0, 0, 0] * 2)
    by_series = pd.concat([holiday.assign(unique_id="a"), holiday.assign(unique_id="b", holiday=0.0)])
    own = gd.ExternalForecaster(MANNERS[name], regressors=by_series).fit(USAGE).predict(5)[name]
    np.testing.assert_allclose(own - plain, [0, 10, 0, 0, 0] + [0] * 5)


@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"])
@pytest.mark.parametrize("name", MANNERS)
def test_regressors_reach_members_on_the_local_clock(name, change):
    """Through changes of the clock in the history and ahead, of which the first hour counts that comes twice."""
    ds = pd.date_range(pd.Timestamp(change, tz="Europe/Berlin") - pd.Timedelta("7D"), periods=24 * 14, freq="h")
    usage, ahead = pd.DataFrame({"unique_id": "a", "ds": ds, "y": 5.0}), 24
    holiday = pd.DataFrame({"ds": ds, "holiday": (ds.hour == 3).astype(float)})
    model = gd.adapt(MANNERS[name], regressors=holiday)
    for n in (24 * 7 - 12, 24 * 9):
        alone, combined, events = (
            one.fit(usage[:n]).predict(ahead).iloc[:, -1]
            for one in (model, gd.CombinedForecaster([model, model]), EventForecaster(model, EVENTS))
        )
        assert alone.tolist() == [15.0 if time.hour == 3 else 5.0 for time in ds[n : n + ahead]]
        assert combined.tolist() == pytest.approx(alone.tolist())
        assert events.tolist() == pytest.approx(alone.tolist())
    unknown = gd.CombinedForecaster([gd.adapt(MANNERS[name], regressors=holiday[:-30])]).fit(usage)
    with pytest.raises(InputError, match="regressor 'holiday' is not known at"):
        unknown.predict(ahead)


@pytest.mark.parametrize("name", MANNERS)
def test_regressors_that_are_not_known_ahead_are_refused(name):
    load = pd.DataFrame({"ds": DS, "load": 1.0})
    model = gd.ExternalForecaster(MANNERS[name], regressors=load).fit(USAGE)
    with pytest.raises(InputError, match="regressor 'load' is not known at 2026-04-30"):
        model.predict(5)


def test_what_is_no_forecaster_is_refused():
    with pytest.raises(InputError, match=r"neither statsforecast's .* nor sktime's"):
        gd.cross_validation(object(), USAGE, h=1)
    with pytest.raises(InputError, match="forecasts 2 columns"):
        gd.ExternalForecaster(TableManner(("One", "Two"))).fit(USAGE).predict(2)
    with pytest.raises(InputError, match="two forecasters are called 'Naive'"):
        gd.cross_validation([gd.Naive(), gd.ExternalForecaster(SeriesManner(), name="Naive")], USAGE, h=1)
    assert protocol(gd.Naive()) == "h"


@pytest.mark.slow
def test_they_are_candidates_of_a_study():
    class Known(SeriesManner):
        def predict(self, fh, X=None):
            return pd.Series(np.arange(len(fh)) + 1 + self.last, index=range(len(fh)))

    rising = pd.DataFrame({"unique_id": "a", "ds": DS, "y": np.arange(60.0) + 1})
    study = gd.Study(rising, horizon=5, forecasters=[gd.ExternalForecaster(Known(), name="Rising")])
    assert study.headline["model"] == "Rising"
    total = study.forecast.set_index("unique_id").loc["total", "Study"]
    np.testing.assert_allclose(total, np.arange(61.0, 66.0))
    assert "Rising" in set(study.trust["model"])


class OneModel:
    """The manner of statsforecast's models: values in, a dictionary out."""

    def fit(self, y, X=None):
        self.mean = y.mean()
        return self

    def predict(self, h, X=None, level=None):
        return {"mean": np.full(h, self.mean)}


def test_a_model_of_statsforecast_by_itself():
    found = gd.ExternalForecaster(OneModel()).fit(USAGE).predict(2, level=[80])
    assert found["OneModel"].tolist() == pytest.approx([USAGE["y"][:60].mean()] * 2 + [24.5] * 2)
    assert (found["OneModel-lo-80"] <= found["OneModel-hi-80"]).all()
    with pytest.raises(InputError, match="regressors do not reach OneModel"):
        gd.ExternalForecaster(OneModel(), regressors=pd.DataFrame({"ds": AHEAD, "x": 1.0})).fit(USAGE)


@pytest.mark.parametrize("kind", [OneModel, gd.SeasonalNaive])
def test_a_class_in_place_of_a_model_is_refused(kind):
    with pytest.raises(InputError, match=rf"pass {kind.__name__}\(\.\.\.\)"):
        gd.cross_validation(kind, USAGE, h=2)


@pytest.mark.filterwarnings("ignore:Optimization failed to converge")
def test_models_of_statsmodels_are_members():
    api = pytest.importorskip("statsmodels.tsa.api")

    def weekly(y):
        return api.SimpleExpSmoothing(y, initialization_method="estimated")

    model = gd.CombinedForecaster([gd.adapt(weekly), gd.SeasonalNaive(7)], max_origins=4)
    found = gd.adapt(weekly, name="SES").fit(USAGE).predict(3)
    expected = weekly(USAGE["y"][:60].to_numpy()).fit().forecast(3)
    np.testing.assert_allclose(found["SES"][:3], expected)
    assert np.isfinite(model.fit(USAGE).predict(3)["CombinedForecaster"]).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_models_of_statsforecast_are_forecasters():
    models = pytest.importorskip("statsforecast.models")
    ets = models.AutoETS(season_length=7)
    alone = gd.adapt(ets).fit(USAGE).predict(7)
    expected = ets.forecast(y=USAGE["y"][:60].to_numpy(), h=7)["mean"]
    np.testing.assert_allclose(alone["AutoETS"][:7], np.maximum(expected, 0), rtol=1e-6)


def test_adapted_forecasters_of_ours_are_themselves():
    naive = gd.Naive()
    assert gd.adapt(naive) is naive
    assert gd.adapt(naive, name="last").fit(USAGE).predict(2).columns[-1] == "last"


@pytest.mark.filterwarnings("ignore")  # of these libraries, by what they call
@pytest.mark.parametrize(
    ("library", "line"),
    [
        ("darts", "TimeSeries.from_dataframe(gd.to_wide(usage).T)"),
        (
            "gluonts.dataset.pandas",
            'PandasDataset.from_long_dataframe(usage, item_id="unique_id", timestamp="ds", target="y")',
        ),
        ("sktime.datatypes", 'check_raise(usage.set_index(["unique_id", "ds"]), "pd-multiindex")'),
    ],
)
def test_other_libraries_take_usage_by_one_line(library, line):
    """The lines of docs/reference.md."""
    module = pytest.importorskip(library)
    usage = USAGE.assign(ds=USAGE["ds"].dt.tz_localize(None))
    assert eval(line, {**vars(module), "gd": gd, "usage": usage})


class Demanding(OneModel):
    """A model that refuses short series in words of its own, and series of zeros by NaN."""

    def fit(self, y, X=None):
        if len(y) < 5:
            raise NotImplementedError("tiny datasets")
        super().fit(y)
        self.mean = self.mean or np.nan
        return self


def test_series_that_a_model_refuses_keep_their_newest_value_and_are_named():
    short = pd.DataFrame({"unique_id": "new", "ds": DS[-3:], "y": [1.0, 2.0, 8.0]})
    idle = pd.DataFrame({"unique_id": "off", "ds": DS, "y": 0.0})
    model = gd.adapt(Demanding()).fit(pd.concat([USAGE, short, idle]))
    message = r"Demanding cannot be fitted to 2 of 4 series, the first .new. with 3 values \(tiny datasets\)"
    with pytest.warns(UnlikelyUsageWarning, match=message):
        found = model.predict(2, level=[80])
    assert found["Demanding"].tolist()[4:] == [8, 8, 0, 0]
    np.testing.assert_allclose(found["Demanding"][:4], gd.adapt(OneModel()).fit(USAGE).predict(2)["OneModel"])
    combined = gd.CombinedForecaster([Demanding(), gd.Naive()]).fit(pd.concat([USAGE, short]))
    with pytest.warns(UnlikelyUsageWarning, match="Demanding cannot"):
        found = combined.predict(2)
    assert np.isfinite(found["CombinedForecaster"]).all()
    with pytest.raises(InputError, match=r"fitted to 1 of 1 series, the first 'new' .* give longer ones"):
        gd.adapt(Demanding()).fit(short).predict(2)
