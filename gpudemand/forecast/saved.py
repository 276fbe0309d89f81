"""Fitted forecasters as files: parameters and training series, without code."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand._files import replace_file
from gpudemand._validation import InputError, UnlikelyUsageWarning, shorten
from gpudemand.forecast.forecaster import ExternalForecaster, Forecaster

_FORMAT, _KEY = 1, "forecaster"
_PLAIN = (str, int, float, bool, type(None))


def save_forecaster(model: Forecaster, path: str | os.PathLike[str]) -> None:
    """Save a fitted forecaster: its parameters and training series, from which `load_forecaster` fits it again.

    Parameters
    ----------
    model : Forecaster
        Fitted.
    path : path-like
        A ``.parquet`` file. It holds no code, so that a file from elsewhere is safe to load; pickle's are not.

    Raises
    ------
    InputError
        For a parameter that is no number, text, list or estimator of this package, and for another file name.

    Examples
    --------
    >>> import tempfile
    >>> from gpudemand.forecast import SeasonalNaive
    >>> usage = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-03-02", periods=28), "y": range(28)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_forecaster(SeasonalNaive(7).fit(usage), Path(folder, "model.parquet"))
    ...     load_forecaster(Path(folder, "model.parquet")).predict(2)["SeasonalNaive"].tolist()
    [21.0, 22.0]
    """
    check_is_fitted(model, "panel_")
    if Path(path).suffix != ".parquet":
        raise InputError(f"a forecaster is saved as a .parquet file; got {shorten(str(path))!r}.")
    panel = model.panel_.on_calendar()
    table = panel.long_frame(panel.times, {"y": panel.values})
    about = {"format": _FORMAT, "freq": panel.freq.freqstr, "model": _described(model)}
    table.attrs = {**panel.attrs, _KEY: about}
    with replace_file(path) as new:
        table.to_parquet(new, index=False)


def load_forecaster(path: str | os.PathLike[str]) -> Any:
    """Load a forecaster that `save_forecaster` has saved, fitted again to the same series: forecasts are the same.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Forecaster

    Raises
    ------
    InputError
        For a file that is none of `save_forecaster`.
    """
    if not Path(path).is_file():
        raise InputError(f"there is no file at {shorten(str(path))!r}.")
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{shorten(str(path))!r} is no Parquet file: {error}.") from error
    about = table.attrs.pop(_KEY, None)
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise InputError(f"{shorten(str(path))!r} holds no forecaster; save_forecaster makes such files.")
    with warnings.catch_warnings(action="ignore", category=UnlikelyUsageWarning):
        return _made(about["model"]).fit(table, freq=about["freq"])


def _described(value: Any) -> Any:
    """A parameter as JSON."""
    if isinstance(value, BaseEstimator) and type(value) is _class(type(value).__name__) is not ExternalForecaster:
        parameters = value.get_params(deep=False)
        return {"class": type(value).__name__, "parameters": {k: _described(v) for k, v in parameters.items()}}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_described(item) for item in value]}
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
        raise InputError(f"this version has no forecaster {shorten(name)!r}; load it with the one that saved it.")
    return made(**{name: _made(item) for name, item in value["parameters"].items()})


def _class(name: str) -> type[BaseEstimator] | None:
    """Forecaster, or transformer or segmenter of users, that the package names."""
    modules = map(import_module, ("gpudemand.forecast", "gpudemand.segments"))
    found = next((getattr(module, name) for module in modules if hasattr(module, name)), None)
    return found if isinstance(found, type) and issubclass(found, BaseEstimator) else None
