"""Events of a study: public holidays and those that were stated, and what the history shows of them."""

from __future__ import annotations

import pandas as pd

from gpudemand._typing import STRING
from gpudemand.forecast import EventForecaster, public_holidays
from gpudemand.forecast.calendar import Calendar
from gpudemand.stages.sources.settings import Settings
from gpudemand.usage.bins import parse_freq

_COLUMNS = ["event", "bins_past", "bins_ahead", "first_ahead", "effect", "effect_from"]


def known_events(usage: pd.DataFrame, settings: Settings) -> pd.DataFrame | None:
    """Events from the begin of the usage to the end of the horizon, with public holidays; None if there are none.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    settings : Settings
        ``events``, ``holidays``, ``horizon`` and ``freq`` are read.

    Returns
    -------
    DataFrame or None
        ``event``, ``start``, ``end``, ``effect``.
    """
    tables = [] if settings.events is None else [settings.events]
    if settings.holidays is not None:
        end = usage["ds"].max() + (settings.horizon + 1) * parse_freq(settings.freq)
        tables.append(public_holidays(settings.holidays, usage["ds"].min(), end))
    return pd.concat(tables, ignore_index=True) if tables else None


def event_table(usage: pd.DataFrame, events: pd.DataFrame, horizon: int) -> pd.DataFrame:
    """Effect of each event that is known, past or ahead.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    events : DataFrame
        As `known_events` returns it.
    horizon : int
        Bins to forecast.

    Returns
    -------
    DataFrame
        ``event``, ``bins_past`` and ``bins_ahead`` (of the history and of the horizon, with some of it),
        ``first_ahead``, ``effect`` (relative change of demand) and ``effect_from`` (``"stated"``, ``"history"``, or
        ``"none shown"``, where the history shows no change beyond chance).
    """
    model, calendar = EventForecaster(events=events).fit(usage), Calendar.of(events)
    panel, n_times = model.panel_, len(model.panel_.times)
    taken = calendar.shares(panel, horizon) > 0
    future = panel.future(horizon)
    rows = []
    for name, stated, effect, bins in zip(calendar.names, calendar.effects, model.effects_, taken, strict=True):
        ahead = bins[n_times:]
        source = "stated" if not pd.isna(stated) else "history" if effect else "none shown"
        first = future[ahead.argmax()] if ahead.any() else pd.NaT
        rows.append((name, int(bins[:n_times].sum()), int(ahead.sum()), first, effect, source))
    table = pd.DataFrame(rows, columns=_COLUMNS)
    return table.astype({"event": STRING, "effect_from": STRING})
