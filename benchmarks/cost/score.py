"""Held-out predictions of methods on a track, and their pooled relative errors."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.tracks import Fold

log = logging.getLogger(__name__)
_LEVEL = 90
#: Distances from the training data that errors are listed by.
_DISTANCES = (0.0, 0.2, 0.5, 1.0, 2.0, np.inf)


def predictions(method: Callable[[], Any], table: pd.DataFrame, folds: list[Fold], group: str) -> pd.DataFrame:
    """Predict the held-out rows of all folds.

    Returns
    -------
    DataFrame
        Index: positions in `table`; ``y``, ``predicted`` and, of methods that have intervals, ``low`` and ``high``.
    """
    return pd.concat([_fold(method, table, fold, group) for fold in folds])


def _fold(method: Callable[[], Any], table: pd.DataFrame, fold: Fold, group: str) -> pd.DataFrame:
    test = table.iloc[fold.test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, factor = _fitted(method(), table, fold, group)
        out = pd.DataFrame({"y": test["step_time_s"].to_numpy(), "fold": fold.name}, index=fold.test)
        out["predicted"] = model.predict(test) * factor
        if hasattr(model, "predict_interval"):
            out["low"], out["high"] = model.predict_interval(test, _LEVEL).T
            out["distance"] = model.distance(test)
    return out


def _fitted(model: Any, table: pd.DataFrame, fold: Fold, group: str) -> tuple[Any, Any]:
    """Fit a model and calibrate it; one without `calibrate` is trained on the calibration rows and scaled by device.

    Returns
    -------
    model : estimator
    factor : float or ndarray of shape (n_test,)
        Factor on its predictions.
    """
    calibrates = fold.calibrate is None or hasattr(model, "calibrate")
    train = table.iloc[fold.train if calibrates else np.concatenate([fold.train, fold.calibrate])]
    model.fit(train, train["step_time_s"].to_numpy(), train[group].astype(object).to_numpy())
    if fold.calibrate is None:
        return model, 1.0
    known, names = table.iloc[fold.calibrate], table["device_name"].iloc[fold.test]
    if calibrates:
        model.calibrate(known, known["step_time_s"].to_numpy())
        return model, 1.0
    ratio = (known["step_time_s"] / model.predict(known)).groupby(known["device_name"].astype(object)).median()
    return model, names.astype(object).map(ratio).fillna(1.0).to_numpy(dtype=float)


def summary(out: pd.DataFrame) -> dict[str, float]:
    """Median, 90th percentile and mean of the relative error, shares within 10 % and inside the interval."""
    error = np.abs(out["predicted"] / out["y"] - 1.0)
    row = {
        "median": error.median(),
        "p90": error.quantile(0.9),
        "mean": error.mean(),
        "within 10 %": (error <= 0.1).mean(),
    }
    if "low" in out.columns:
        row["in 90 % interval"] = ((out["y"] >= out["low"]) & (out["y"] <= out["high"])).mean()
    return {name: float(value) for name, value in row.items()}


def log_errors(outs: dict[str, pd.DataFrame], groups: pd.Series) -> None:
    """Log errors of all methods, and of the first by the groups of the rows of a table."""
    log.info(_text(pd.DataFrame({method: summary(out) for method, out in outs.items()}).T))
    method, first = next(iter(outs.items()))
    if "distance" in first.columns:
        log.info("by distance from the training data:\n%s", _text(by_distance(outs)))
    if first["fold"].any():
        log.info("by fold, median and 90th percentile:\n%s", _text(by_fold(outs)))
        return
    parts = first.groupby(groups.iloc[first.index].astype(object).to_numpy())
    by_group = pd.DataFrame({key: {"rows": len(out), **summary(out)} for key, out in parts}).T
    log.info("by %s, %s:\n%s", groups.name, method, _text(by_group.sort_values("median", ascending=False)))


def by_fold(outs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Errors of all methods by named fold, and the share of the first inside its interval."""
    columns: dict[str, dict[str, float]] = {"rows": next(iter(outs.values()))["fold"].value_counts().to_dict()}
    for method, out in outs.items():
        rows = {name: summary(part) for name, part in out.groupby("fold", sort=False)}
        columns |= {f"{method}, {what}": {name: row[what] for name, row in rows.items()} for what in ("median", "p90")}
        if "low" in out.columns:
            columns[f"{method}, inside"] = {name: row["in 90 % interval"] for name, row in rows.items()}
    return pd.DataFrame(columns)


def by_distance(outs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Rows, median error of all methods, and share of the first inside its interval, by distance of the first."""
    first = next(iter(outs.values()))
    parts = first.groupby(pd.cut(first["distance"], _DISTANCES, include_lowest=True).to_numpy()).indices
    rows = {
        str(distance): {
            "rows": len(part),
            "inside": summary(first.iloc[part])["in 90 % interval"],
            **{method: summary(out.iloc[part])["median"] for method, out in outs.items()},
        }
        for distance, part in sorted(parts.items())
    }
    return pd.DataFrame(rows).T


def _text(table: pd.DataFrame) -> str:
    return table.to_string(float_format="{:.3f}".format)


def held_out(track: str, outs: dict[str, pd.DataFrame], table: pd.DataFrame) -> pd.DataFrame:
    """Ratios of held-out predictions to measurements, which may be published; the measurements may not.

    Returns
    -------
    DataFrame
        ``track, method, network, family, device, ratio`` (predicted over measured), ``inside`` (of its 90 % interval).
    """
    parts = []
    for method, out in outs.items():
        about = table.loc[out.index, ["network", "family", "device_name"]].rename(columns={"device_name": "device"})
        inside = np.full(len(out), np.nan)
        if "low" in out.columns:
            inside = ((out["y"] >= out["low"]) & (out["y"] <= out["high"])).to_numpy(dtype=float)
        ratio = (out["predicted"] / out["y"]).round(4)
        parts.append(about.assign(ratio=ratio, inside=inside, method=method, track=track))
    found = pd.concat(parts, ignore_index=True)
    return found[["track", "method", "network", "family", "device", "ratio", "inside"]]
