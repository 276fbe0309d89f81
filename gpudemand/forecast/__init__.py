"""How much will they want: forecasters on long usage series, and the backtest that judges them."""

from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.base import Forecaster
from gpudemand.forecast.baselines import LastValueProfile, Naive, SeasonalNaive, WeekProfile
from gpudemand.forecast.clusterwise import ClusterwiseForecaster
from gpudemand.forecast.coldstart import AnalogueForecaster
from gpudemand.forecast.combined import CombinedForecaster
from gpudemand.forecast.double_seasonal import DoubleSeasonalSmoothing
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.hierarchy import reconcile
from gpudemand.forecast.intermittent import SBA, TSB, HistoricMean, Zero
from gpudemand.forecast.lags import LagRegression
from gpudemand.forecast.outages import find_outages, mask_outages
from gpudemand.forecast.panel import Panel
from gpudemand.forecast.ridge import RidgeAutoregression
from gpudemand.forecast.smoothing import ETS
from gpudemand.forecast.theta import Theta

__all__ = [
    "ETS",
    "SBA",
    "TSB",
    "AnalogueForecaster",
    "ClusterwiseForecaster",
    "CombinedForecaster",
    "DoubleSeasonalSmoothing",
    "Forecaster",
    "HistoricMean",
    "LagRegression",
    "LastValueProfile",
    "Naive",
    "Panel",
    "RidgeAutoregression",
    "SeasonalNaive",
    "TemporalFactorization",
    "Theta",
    "WeekProfile",
    "Zero",
    "cross_validation",
    "find_outages",
    "mask_outages",
    "reconcile",
]
