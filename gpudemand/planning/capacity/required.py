"""GPUs required by series and bin, from the quantiles of demand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.quantiles import QuantileTable

#: Quantiles that a plan lists.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def required_table(
    forecast: pd.DataFrame,
    quantiles: QuantileTable,
    installed: FloatArray,
    target_utilization: float,
    service_level: float,
) -> pd.DataFrame:
    """Table of a plan, sorted by series and time; see `CapacityPlan.to_frame`."""
    demand = {name: _demand(quantiles, share) for name, share in SHARES.items()}
    required = _required(_demand(quantiles, service_level), target_utilization)
    columns = {f"demand_{name}": gpus for name, gpus in demand.items()}
    columns |= {f"required_{name}": _required(gpus, target_utilization) for name, gpus in demand.items()}
    columns |= {"required": required, "installed": installed, "shortfall": np.maximum(required - installed, 0.0)}
    columns["p_over"] = quantiles.exceedance(installed)
    table = pd.DataFrame({"unique_id": forecast["unique_id"], "ds": forecast["ds"], **columns})
    return table.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def _demand(quantiles: QuantileTable, share: float) -> FloatArray:
    # Forecasts may be negative, demand is not.
    return np.maximum(quantiles.quantile(share), 0.0)


def _required(demand: FloatArray, target_utilization: float) -> FloatArray:
    # Rounded so that no GPU is added for a rounding error: 85.0 / 0.85 is 100.00000000000001.
    return np.ceil(np.round(demand / target_utilization, 9))
