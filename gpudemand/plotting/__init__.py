"""Displays, as in scikit-learn; matplotlib is imported when the first one is drawn."""

from gpudemand.plotting._base import BASELINE, GROUPS, INSTALLED, MEASURED, PREDICTED, style
from gpudemand.plotting.cost_prediction import CostErrorDisplay, CostPredictionDisplay
from gpudemand.plotting.exceedance import ExceedanceDisplay
from gpudemand.plotting.forecast import ForecastDisplay
from gpudemand.plotting.forecast_error import HorizonErrorDisplay, StackedForecastDisplay
from gpudemand.plotting.persistence_diagram import PersistenceDiagramDisplay
from gpudemand.plotting.planning import CapacityPlanDisplay, OutlookDisplay
from gpudemand.plotting.rfm import RFMDisplay
from gpudemand.plotting.segment_profiles import SegmentProfileDisplay
from gpudemand.plotting.segment_shares import SegmentShareDisplay, SegmentTransitionDisplay
from gpudemand.plotting.structural_matrix import StructuralMatrixDisplay
from gpudemand.plotting.usage import UsageDisplay, WeeklyProfileDisplay
from gpudemand.plotting.waits import WaitDisplay

__all__ = [
    "BASELINE",
    "GROUPS",
    "INSTALLED",
    "MEASURED",
    "PREDICTED",
    "CapacityPlanDisplay",
    "CostErrorDisplay",
    "CostPredictionDisplay",
    "ExceedanceDisplay",
    "ForecastDisplay",
    "HorizonErrorDisplay",
    "OutlookDisplay",
    "PersistenceDiagramDisplay",
    "RFMDisplay",
    "SegmentProfileDisplay",
    "SegmentShareDisplay",
    "SegmentTransitionDisplay",
    "StackedForecastDisplay",
    "StructuralMatrixDisplay",
    "UsageDisplay",
    "WaitDisplay",
    "WeeklyProfileDisplay",
    "style",
]
