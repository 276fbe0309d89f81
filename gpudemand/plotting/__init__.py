"""Displays: arrays in, figures out; matplotlib is imported when the first one is drawn."""

from gpudemand.plotting._base import BASELINE, GROUPS, INSTALLED, MEASURED, PREDICTED, style
from gpudemand.plotting.cost import StructuralMatrixDisplay
from gpudemand.plotting.exceedance import ExceedanceDisplay
from gpudemand.plotting.forecast import ForecastDisplay
from gpudemand.plotting.forecast_error import HorizonErrorDisplay, RollUpDisplay
from gpudemand.plotting.planning import CapacityPlanDisplay
from gpudemand.plotting.prediction import CostErrorDisplay, CostPredictionDisplay
from gpudemand.plotting.segments import PersistenceDiagramDisplay
from gpudemand.plotting.segments_profiles import SegmentProfileDisplay
from gpudemand.plotting.segments_rfm import RFMDisplay
from gpudemand.plotting.segments_time import SegmentShareDisplay, SegmentTransitionDisplay
from gpudemand.plotting.usage import RhythmDisplay, UsageDisplay

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
    "PersistenceDiagramDisplay",
    "RFMDisplay",
    "RhythmDisplay",
    "RollUpDisplay",
    "SegmentProfileDisplay",
    "SegmentShareDisplay",
    "SegmentTransitionDisplay",
    "StructuralMatrixDisplay",
    "UsageDisplay",
    "style",
]
