from .clustering import select_n_segments
from .features import ExtrapolationWarning
from .profiles import segment_profiles
from .rfm import RFM, CalendarProfile, UserPresence, rfm_table
from .rips import RipsStatistics
from .segmenter import TopologicalSegmenter
from .series_features import LogSpectrum, MultiscalePersistence, UsageRhythm, WeeklyPersistence
from .stability import segment_ablation, segment_stability
from .topology import (
    PersistenceCurves,
    PersistenceStatistics,
    diagram_statistics,
    maxmin_landmarks,
    persistence_statistics,
    stack_diagrams,
    sublevel_persistence,
    superlevel_persistence,
    takens_embedding,
)
from .usage_matrix import as_matrix

__all__ = [
    "RFM",
    "CalendarProfile",
    "ExtrapolationWarning",
    "LogSpectrum",
    "MultiscalePersistence",
    "PersistenceCurves",
    "PersistenceStatistics",
    "RipsStatistics",
    "TopologicalSegmenter",
    "UsageRhythm",
    "UserPresence",
    "WeeklyPersistence",
    "as_matrix",
    "diagram_statistics",
    "maxmin_landmarks",
    "persistence_statistics",
    "rfm_table",
    "segment_ablation",
    "segment_profiles",
    "segment_stability",
    "select_n_segments",
    "stack_diagrams",
    "sublevel_persistence",
    "superlevel_persistence",
    "takens_embedding",
]
