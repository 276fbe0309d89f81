"""Displays, as in scikit-learn; matplotlib is imported when the first one is drawn."""

from gpudemand.plotting.base import BASELINE, GROUPS, INSTALLED, MEASURED, PREDICTED, style
from gpudemand.plotting.cost import CostErrorDisplay, CostPredictionDisplay, StructuralMatrixDisplay
from gpudemand.plotting.forecast import ForecastDisplay, HorizonErrorDisplay, StackedForecastDisplay
from gpudemand.plotting.plan import CapacityPlanDisplay, ExceedanceDisplay, OutlookDisplay, PurchaseLeadDisplay
from gpudemand.plotting.segments import (
    PersistenceDiagramDisplay,
    RFMDisplay,
    SegmentProfileDisplay,
    SegmentShareDisplay,
    SegmentTransitionDisplay,
)
from gpudemand.plotting.usage import UsageDisplay, WaitDisplay, WeeklyProfileDisplay

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
    "PurchaseLeadDisplay",
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
