"""How much will they want: forecasters on long usage series, and the backtest that judges them."""

from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.base import Forecaster
from gpudemand.forecast.baselines import LastValueProfile, Naive, SeasonalNaive
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.panel import Panel
from gpudemand.forecast.smoothing import ETS

__all__ = [
    "ETS",
    "Forecaster",
    "LastValueProfile",
    "Naive",
    "Panel",
    "SeasonalNaive",
    "TemporalFactorization",
    "cross_validation",
]
