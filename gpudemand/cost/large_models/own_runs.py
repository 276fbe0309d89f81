"""What measured runs of one's own tell of others: errors of a stack are alike, the more so the closer two runs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from gpudemand._typing import FloatArray
from gpudemand.cost.large_models.run import TrainingRun

#: Shares of the variance of a standardised log error that all runs of a stack have in common, and that those alike
#: have; the rest is each run's own. Of public projects, some 40 % of the variance is between them.
_COMMON, _ALIKE = 0.3, 0.55
#: Doublings of a size that are as far as one differing option.
_DOUBLINGS = 2.0
_LEVELS = {"selective": 0.5, "full": 1.0}


def coordinates(runs: Sequence[TrainingRun]) -> FloatArray:
    """Sizes (in doublings) and options of runs, shape (n_runs, 13): what makes two of them alike."""
    return np.array([[*np.log2(_sizes(run)) / _DOUBLINGS, *_options(run)] for run in runs], dtype=float)


def _sizes(run: TrainingRun) -> list[float]:
    layout = run.parallel
    degrees = [1, 1] if layout is None else [layout.tensor, layout.pipeline]
    peak = run.device.peak("fp16")
    return [run.n_gpus, run.model.n_active_parameters, run.seq_len, run.micro_batch or 1, peak, *degrees]


def _options(run: TrainingRun) -> list[float]:
    adapter, sharded = run.adapter, run.parallel is not None and run.parallel.shards_parameters
    bits = 16 if adapter is None else adapter.bits
    level = _LEVELS.get(str(run.checkpointing), 0.0)
    return [run.precision == "fp8", adapter is not None, bits / 16, level, sharded, run.offload is not None]


class OwnRuns(NamedTuple):
    """Gaussian process of standardised log errors, given those of measured runs.

    Attributes
    ----------
    at : ndarray of shape (n_runs, 13)
        `coordinates` of the measured runs.
    inverse : ndarray of shape (n_runs, n_runs)
        Of the covariance of their errors.
    errors : ndarray of shape (n_runs,)
    """

    at: FloatArray
    inverse: FloatArray
    errors: FloatArray

    @classmethod
    def of(cls, at: FloatArray, errors: FloatArray, noise: FloatArray) -> OwnRuns:
        """Condition on errors, whose own variance is what runs do not share and `noise`."""
        own = 1.0 - _COMMON - _ALIKE + noise
        return cls(at, np.asarray(np.linalg.inv(_covariance(at, at) + np.diag(own)), dtype=float), errors)

    def posterior(self, at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean of the standardised error of other runs, and the variance that remains (1 without measured runs)."""
        shared = _covariance(at, self.at) @ self.inverse
        return shared @ self.errors, 1.0 - (shared * _covariance(at, self.at)).sum(axis=1)


def _covariance(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.asarray(_COMMON + _ALIKE * np.exp(-cdist(one, other)))
