"""What it buys to know public holidays, on logs with dates and a country."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import sources
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import CombinedForecaster, EventForecaster, Panel, find_outages, mask_outages, public_holidays
from gpudemand.forecast.events import Calendar

TITLE = "GPUs held (processors of KTH-SP2 and Atlas): WAPE on public holidays and on other days, not known and known"
AIM = "smaller errors on holidays where demand follows them, the same errors elsewhere"
#: Countries of the logs. What an event must show before it counts was decided on KTH-SP2, Venus and Atlas.
COUNTRIES: Mapping[str, str] = {"KTH-SP2": "SE", "Venus": "CN", "LLNL Atlas": "US", "Philly": "US", "PAI": "CN"}
_HORIZONS = (("h", 24), ("h", 168), ("D", 7), ("D", 28))


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a log, width of bin and horizon; origins are all days after a third of the log."""
    rows = {}
    for log, country in COUNTRIES.items():
        jobs = (sources.LOGS | {"PAI": sources.pai_jobs})[log](data)
        for freq, h in _HORIZONS:
            panel = _recorded(sources.held(jobs, None, freq))
            if 5 * h <= len(panel.times):
                rows[f"{log}, {freq}, {h}"] = _scores(panel, country, freq, h)
    return pd.DataFrame(rows).T


def _recorded(panel: Panel) -> Panel:
    usage = panel.long_frame(panel.times, {"y": panel.values})
    return Panel.from_long(mask_outages(usage, find_outages(usage)), panel.freq, allow_missing=True)


def _scores(panel: Panel, country: str, freq: str, h: int) -> dict[str, float]:
    events = public_holidays(country, panel.times[0], panel.times[-1])
    # Sweden counts every Sunday.
    events = events[events["holiday"] != "Sunday"]
    known, n_times = EventForecaster(CombinedForecaster(), events), len(panel.times)
    origins = np.arange(n_times // 3, n_times - h + 1, 24 if freq == "h" else 1)
    ahead = origins[:, None] + np.arange(h)
    actual, holiday = panel.values[0, ahead], (Calendar.of(events).shares(panel, 0) > 0).any(axis=0)[ahead]
    usage = panel.long_frame(panel.times, {"y": panel.values})
    row: dict[str, float] = {"effect": known.fit(usage).effects_.iloc[0], "holidays ahead": float(holiday.sum())}
    for name, model in (("not known", CombinedForecaster()), ("known", known)):
        error = np.abs(model.forecast_from(panel, origins, h)[0] - actual)
        for days, where in (("holidays", holiday), ("other days", ~holiday)):
            row[f"{days}, {name}"] = float(np.nansum(error[where]) / np.nansum(actual[where]))
    return row
