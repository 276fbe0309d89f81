"""Forecasters of long usage series, and their rolling-origin evaluation."""

from gpudemand._validation import UnlikelyUsageWarning
from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.clusterwise import ClusterwiseForecaster
from gpudemand.forecast.clusterwise_factorization import ClusterwiseFactorization
from gpudemand.forecast.combination import CombinedForecaster
from gpudemand.forecast.events import EventForecaster, find_outages, mask_outages, public_holidays
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.forecaster import (
    ExternalForecaster,
    Forecaster,
    ShortHistoryWarning,
    adapt,
    scale_samples,
    sum_samples,
)
from gpudemand.forecast.horizon import HorizonForecaster, longest_horizon
from gpudemand.forecast.naive import (
    LastValueProfile,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalMedian,
    SeasonalNaive,
)
from gpudemand.forecast.panel import Panel
from gpudemand.forecast.reconcile import reconcile
from gpudemand.forecast.regression import DecayedMeanRegression, LagRegression, RidgeAutoregression
from gpudemand.forecast.smoothing import ETS, SBA, TSB, DoubleSeasonalSmoothing, HistoricMean, Zero

__all__ = [
    "ETS",
    "SBA",
    "TSB",
    "ClusterwiseFactorization",
    "ClusterwiseForecaster",
    "CombinedForecaster",
    "DecayedMeanRegression",
    "DoubleSeasonalSmoothing",
    "EventForecaster",
    "ExternalForecaster",
    "Forecaster",
    "HistoricMean",
    "HorizonForecaster",
    "LagRegression",
    "LastValueProfile",
    "Naive",
    "Panel",
    "RidgeAutoregression",
    "SeasonalMedian",
    "SeasonalNaive",
    "SeasonallyAdjustedNaive",
    "ShortHistoryWarning",
    "TemporalFactorization",
    "UnlikelyUsageWarning",
    "Zero",
    "adapt",
    "cross_validation",
    "find_outages",
    "longest_horizon",
    "mask_outages",
    "public_holidays",
    "reconcile",
    "scale_samples",
    "sum_samples",
]
