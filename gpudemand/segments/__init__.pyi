from .ablation import segment_ablation
from .base.usage_matrix import as_matrix
from .clustering.selection import select_n_segments
from .features.discriminants import ExtrapolationWarning
from .features.multiscale_persistence import MultiscalePersistence
from .features.rfm import RFM, CalendarProfile, UserPresence, rfm_table
from .features.rhythm import UsageRhythm
from .features.spectrum import LogSpectrum
from .features.weekly_persistence import WeeklyPersistence
from .profiles import segment_profiles
from .segmenter import TopologicalSegmenter
from .stability import segment_stability
from .topology.diagrams import diagram_statistics, stack_diagrams
from .topology.rips import RipsStatistics, rips_persistence
from .topology.sublevel import (
    PersistenceStatistics,
    persistence_statistics,
    sublevel_persistence,
    superlevel_persistence,
)
from .topology.windows import maxmin_landmarks, takens_embedding

__all__ = [
    "RFM",
    "CalendarProfile",
    "ExtrapolationWarning",
    "LogSpectrum",
    "MultiscalePersistence",
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
    "rips_persistence",
    "segment_ablation",
    "segment_profiles",
    "segment_stability",
    "select_n_segments",
    "stack_diagrams",
    "sublevel_persistence",
    "superlevel_persistence",
    "takens_embedding",
]
