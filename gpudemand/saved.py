"""Fitted forecasters and segmenters as files: parameters and training series, without code."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand import forecast, segments
from gpudemand._files import replace_file
from gpudemand._validation import InputError, UnlikelyUsageWarning, shorten
from gpudemand.forecast.forecaster import ExternalForecaster, Forecaster
from gpudemand.segments.features import ExtrapolationWarning
from gpudemand.segments.segmenter import TopologicalSegmenter

_FORMAT, _KEY = 2, "model"
_PLAIN = (str, int, float, bool, type(None))


def save_model(model: Forecaster | TopologicalSegmenter, path: str | os.PathLike[str]) -> None:
    """Save a fitted forecaster or segmenter: its parameters and training series, to which `load_model` fits it again.

    Parameters
    ----------
    model : Forecaster or TopologicalSegmenter
        Fitted, with a whole number as `random_state` where there is one.
    path : path-like
        A ``.parquet`` file. It holds no code, so that a file from elsewhere is safe to load; pickle's are not.

    Raises
    ------
    InputError
        For a parameter that is no number, text, list or estimator of this package, for another file name, and for a
        model that would be another one when it is fitted again.

    Examples
    --------
    >>> import tempfile
    >>> from gpudemand.forecast import SeasonalNaive
    >>> usage = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-03-02", periods=28), "y": range(28)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(SeasonalNaive(7).fit(usage), Path(folder, "model.parquet"))
    ...     load_model(Path(folder, "model.parquet")).predict(2)["SeasonalNaive"].tolist()
    [21.0, 22.0]
    """
    if Path(path).suffix != ".parquet":
        raise InputError(f"a fitted model is saved as a .parquet file; got {shorten(str(path))!r}.")
    if isinstance(model, TopologicalSegmenter):
        table, times = _matrix(model)
    else:
        check_is_fitted(model, "panel_")
        panel = model.panel_.on_calendar()
        table, times = panel.long_frame(panel.times, {"y": panel.values}), {"freq": panel.freq.freqstr}
        table.attrs = dict(panel.attrs)
    table.attrs[_KEY] = {"format": _FORMAT, "model": _described(model), **times}
    with replace_file(path) as new:
        table.to_parquet(new)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Load what `save_model` has saved, fitted again to the same series: forecasts and segments are the same.

    Raises
    ------
    InputError
        For a file that is none of `save_model`.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file at {shorten(str(path))!r}.")
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{shorten(str(path))!r} is no Parquet file: {error}.") from error
    about = table.attrs.pop(_KEY, None)
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise InputError(f"{shorten(str(path))!r} holds no forecaster or segmenter; save_model makes such files.")
    model = _made(about["model"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnlikelyUsageWarning)
        warnings.simplefilter("ignore", ExtrapolationWarning)
        if isinstance(model, TopologicalSegmenter):
            times = about["times"]
            columns = table.columns if times is None else pd.to_datetime(times, utc=True).tz_convert(about["zone"])
            return model.fit(table.set_axis(columns, axis=1))
        return model.fit(table, freq=about["freq"])


def _matrix(model: TopologicalSegmenter) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The matrix that a segmenter was fitted to, and its times, which a file cannot have as names of columns."""
    check_is_fitted(model, "labels_")
    values, ids, ds = model.matrix_
    table = pd.DataFrame(values, ids, [str(place) for place in range(values.shape[1])])
    if not model.transform(table if ds is None else table.set_axis(ds, axis=1)).equals(model.features_):
        raise InputError(
            "the array that the segmenter was fitted to has been changed since; fit it anew, then save it."
        )
    zone = None if ds is None or ds.tz is None else str(ds.tz)
    return table, {"times": None if ds is None else [time.isoformat() for time in ds], "zone": zone}


def _described(value: Any) -> Any:
    """A parameter as JSON."""
    if isinstance(value, BaseEstimator) and type(value) is _class(type(value).__name__) is not ExternalForecaster:
        parameters = value.get_params(deep=False)
        if not isinstance(seed := parameters.get("random_state", 0), (int, np.integer)):
            what = f"{type(value).__name__} with random_state={shorten(str(seed))}"
            raise InputError(f"a {what} is another one when it is fitted again; fit it with random_state=0.")
        return {"class": type(value).__name__, "parameters": {k: _described(v) for k, v in parameters.items()}}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_described(item) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    raise InputError(f"a parameter that is a {type(value).__name__} cannot be saved; fit the model anew instead.")


def _made(value: Any) -> Any:
    """The parameter that was described; classes are those that the package names, and nothing else."""
    if not isinstance(value, dict):
        return value
    for kind in (list, tuple):
        if kind.__name__ in value:
            return kind(_made(item) for item in value[kind.__name__])
    name = str(value.get("class"))
    made = _class(name)
    if made is None:
        raise InputError(
            f"this version has no forecaster or segmenter {shorten(name)!r}; load it with the one that saved it."
        )
    unknown = sorted(set(value["parameters"]) - set(made._get_param_names()))
    if unknown:
        raise InputError(
            f"{name} of this version has no {shorten(', '.join(unknown))}; load it with the version that saved it."
        )
    return made(**{name: _made(item) for name, item in value["parameters"].items()})


def _class(name: str) -> type[BaseEstimator] | None:
    """Forecaster, or transformer or segmenter of users, that the package names."""
    found = getattr(forecast, name, None) or getattr(segments, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseEstimator) else None
