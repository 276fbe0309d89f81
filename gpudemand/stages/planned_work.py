"""Work to come in the forecast of the total, and in those of the pools that it is assigned to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, nearest
from gpudemand.planning.scenarios.programme import PlannedWork, add_programmes
from gpudemand.stages.selection import SelectedForecast
from gpudemand.stages.usage_tables import MEAN


def check_types(programmes: Sequence[PlannedWork], known: Sequence[str]) -> None:
    """Raise for work on a GPU type that is not known."""
    for programme in programmes:
        name = programme.gpu_type
        if name is not None and name not in known:
            raise InputError(
                f"programme {programme.name!r} is on GPU type {name!r}, which neither the log nor installed "
                f"names.{nearest(name, known)} Give installed by GPU type, with 0 for one that is yet to come."
            )


def add_to_total(selected: SelectedForecast, programmes: Sequence[PlannedWork]) -> SelectedForecast:
    """Add work to the forecasts of the mean and of the peak."""
    forecast = selected.forecast
    for series in forecast["unique_id"].unique() if programmes else ():
        forecast = add_programmes(forecast, programmes, series, peak=series != MEAN)
    return replace(selected, forecast=forecast)


def add_to_pools(rows: pd.DataFrame, programmes: Sequence[PlannedWork], *, peak: bool) -> pd.DataFrame:
    """Add each work to the series of its GPU type, also where the log has no such type.

    Parameters
    ----------
    rows : DataFrame
        ``unique_id`` (the type), ``ds`` and the columns of one model.
    programmes : sequence of Programme or Serving
        Each with a ``gpu_type``.
    peak : bool

    Examples
    --------
    >>> from gpudemand.planning import Programme
    >>> ds = pd.date_range("2026-03-01", periods=2, tz="UTC")
    >>> rows = pd.DataFrame({"unique_id": "A100", "ds": ds, "M": 9.0})
    >>> more = Programme("new", 48, "2026-03-01", "2026-03-03", hours=1, gpus=2, gpu_type="H100")
    >>> add_to_pools(rows, [more], peak=False).groupby("unique_id")["M"].sum().to_dict()
    {'A100': 18.0, 'H100': 4.0}
    """
    for programme in programmes:
        if programme.gpu_type not in set(rows["unique_id"]):
            new = rows.drop_duplicates("ds").assign(**dict.fromkeys(rows.columns.difference(["unique_id", "ds"]), 0.0))
            rows = pd.concat([rows, new.assign(unique_id=programme.gpu_type)], ignore_index=True)
        rows = add_programmes(rows, [programme], str(programme.gpu_type), peak=peak)
    return rows.astype({"unique_id": STRING})
