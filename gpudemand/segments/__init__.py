"""Users by the shape of their usage: persistence, spectrum and RFM features of series.

Names are loaded when first used: the first use of a compiled one loads numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudemand.segments.ablation import segment_ablation
    from gpudemand.segments.consensus import consensus_labels
    from gpudemand.segments.embedding import TakensEmbedding, maxmin_landmarks, takens_embedding
    from gpudemand.segments.homology import RipsStatistics, rips_persistence
    from gpudemand.segments.matrix import as_matrix
    from gpudemand.segments.persistence import (
        PersistenceStatistics,
        persistence_statistics,
        sublevel_persistence,
        superlevel_persistence,
    )
    from gpudemand.segments.profiles import segment_profiles
    from gpudemand.segments.rfm import RFM, CalendarProfile, UserPresence, rfm_table
    from gpudemand.segments.rhythm import UsageRhythm
    from gpudemand.segments.segmenter import TopologicalSegmenter
    from gpudemand.segments.selection import select_n_segments
    from gpudemand.segments.spectrum import LogSpectrum
    from gpudemand.segments.stability import segment_stability
    from gpudemand.segments.vectorize import BettiCurve, PersistenceEntropy, PersistenceImage, PersistenceLandscape
    from gpudemand.segments.waves import WeeklyPersistence

_HOME = {
    "BettiCurve": "vectorize",
    "CalendarProfile": "rfm",
    "LogSpectrum": "spectrum",
    "PersistenceEntropy": "vectorize",
    "PersistenceImage": "vectorize",
    "PersistenceLandscape": "vectorize",
    "PersistenceStatistics": "persistence",
    "RFM": "rfm",
    "RipsStatistics": "homology",
    "TakensEmbedding": "embedding",
    "TopologicalSegmenter": "segmenter",
    "UsageRhythm": "rhythm",
    "UserPresence": "rfm",
    "WeeklyPersistence": "waves",
    "as_matrix": "matrix",
    "consensus_labels": "consensus",
    "maxmin_landmarks": "embedding",
    "persistence_statistics": "persistence",
    "rfm_table": "rfm",
    "rips_persistence": "homology",
    "segment_ablation": "ablation",
    "segment_profiles": "profiles",
    "segment_stability": "stability",
    "select_n_segments": "selection",
    "sublevel_persistence": "persistence",
    "superlevel_persistence": "persistence",
    "takens_embedding": "embedding",
}

__all__ = [
    "RFM",
    "BettiCurve",
    "CalendarProfile",
    "LogSpectrum",
    "PersistenceEntropy",
    "PersistenceImage",
    "PersistenceLandscape",
    "PersistenceStatistics",
    "RipsStatistics",
    "TakensEmbedding",
    "TopologicalSegmenter",
    "UsageRhythm",
    "UserPresence",
    "WeeklyPersistence",
    "as_matrix",
    "consensus_labels",
    "maxmin_landmarks",
    "persistence_statistics",
    "rfm_table",
    "rips_persistence",
    "segment_ablation",
    "segment_profiles",
    "segment_stability",
    "select_n_segments",
    "sublevel_persistence",
    "superlevel_persistence",
    "takens_embedding",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
