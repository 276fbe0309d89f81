"""Forecasters of long usage series, and their rolling-origin evaluation."""

from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.base.external import ExternalForecaster
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel
from gpudemand.forecast.base.samples import scale_samples, sum_samples
from gpudemand.forecast.calendar import public_holidays
from gpudemand.forecast.classical.baselines import (
    LastValueProfile,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalMedian,
    SeasonalNaive,
    WeekProfile,
)
from gpudemand.forecast.classical.double_seasonal import DoubleSeasonalSmoothing
from gpudemand.forecast.classical.ets import ETS
from gpudemand.forecast.classical.intermittent import SBA, TSB, HistoricMean, Zero
from gpudemand.forecast.classical.theta import Theta
from gpudemand.forecast.clusterwise.clusterwise import ClusterwiseForecaster
from gpudemand.forecast.clusterwise.clusterwise_factorization import ClusterwiseFactorization
from gpudemand.forecast.coldstart import AnalogueForecaster
from gpudemand.forecast.combination.combined import CombinedForecaster
from gpudemand.forecast.combination.horizon import HorizonForecaster, ShortHistoryWarning, longest_horizon
from gpudemand.forecast.events import EventForecaster
from gpudemand.forecast.factorization.temporal_factorization import TemporalFactorization
from gpudemand.forecast.outages import find_outages, mask_outages
from gpudemand.forecast.reconciliation import reconcile
from gpudemand.forecast.regression.lag_regression import LagRegression
from gpudemand.forecast.regression.ridge import RidgeAutoregression

__all__ = [
    "ETS",
    "SBA",
    "TSB",
    "AnalogueForecaster",
    "ClusterwiseFactorization",
    "ClusterwiseForecaster",
    "CombinedForecaster",
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
    "Theta",
    "WeekProfile",
    "Zero",
    "cross_validation",
    "find_outages",
    "longest_horizon",
    "mask_outages",
    "public_holidays",
    "reconcile",
    "scale_samples",
    "sum_samples",
]
