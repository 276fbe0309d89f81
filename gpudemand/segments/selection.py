"""How many segments there are: as many as come back in other users, and hold together better than a single crowd."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from gpudemand._typing import FloatArray
from gpudemand.segments.centres import nearest_centres

#: Below this agreement between two halves of the users, segments are luck.
STABLE = 0.6
#: How much better than in one crowd of the same spread segments must predict unseen users, in natural logarithms.
GAIN = 0.2
_SPLITS, _CROWDS, _TOLERANCE = 10, 3, 0.01
_LARGEST_SAMPLE, _USERS_PER_SEGMENT = 2000, 8


class Selection(NamedTuple):
    """The number of segments, and the table it was read from (index ``n_segments``: ``stability``, ``gain``)."""

    n_segments: int
    table: pd.DataFrame

    @property
    def strength(self) -> float:
        """Stability of the segments chosen; 0 if there is only one."""
        return float(self.table["stability"].loc[self.n_segments]) if self.n_segments > 1 else 0.0


def select_n_segments(positions: FloatArray, max_segments: int, rng: np.random.Generator) -> Selection:
    """Choose the number of segments by stability and held-out likelihood; one if there is a single population.

    For each number, two random halves of the users are clustered on their own, ten times. *Stability* is the mean
    adjusted Rand index, on the second half, between its own segments and those that the first half assigns. *Gain* is
    how much the logarithm of the held-out mean square distance to the centres falls below that in a Gaussian crowd of
    the same spread (the held-out likelihood of a spherical mixture, but for constants). Numbers with a stability of at
    least 0.6 and a gain of at least 0.2 count; the smallest whose stability is within 0.01 of the best is chosen.

    Parameters
    ----------
    positions : ndarray, shape (n_users, n_dimensions)
        Uncorrelated coordinates, as principal axes are. Of more than 2,000 users a sample is used.
    max_segments : int
        Largest number to try; also no more than one for every eight users.
    rng : Generator

    Returns
    -------
    Selection

    References
    ----------
    R. Tibshirani and G. Walther, *Cluster validation by prediction strength*, JCGS 14(3), 2005; R. Tibshirani,
    G. Walther and T. Hastie, *Estimating the number of clusters in a data set via the gap statistic*, JRSS B 63, 2001.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> crowd = rng.normal(size=(60, 3))
    >>> select_n_segments(crowd, 5, rng).n_segments
    1
    >>> select_n_segments(np.vstack([crowd, crowd + 9]), 5, rng).n_segments
    2
    """
    sample = _sample(positions, rng)
    most = min(max_segments, len(sample) // _USERS_PER_SEGMENT)
    rows = {number: _score(sample, number, rng) for number in range(2, most + 1)}
    table = pd.DataFrame.from_dict({1: (1.0, 0.0), **rows}, orient="index", columns=["stability", "gain"])
    return Selection(_choose(table), table.rename_axis("n_segments"))


def stability(positions: FloatArray, n_segments: int, rng: np.random.Generator) -> float:
    """Return the stability of a given number of segments, as in `select_n_segments`."""
    sample = _sample(positions, rng)
    return float(np.mean([_split(sample, n_segments, rng)[0] for _ in range(_SPLITS)]))


def _sample(positions: FloatArray, rng: np.random.Generator) -> FloatArray:
    if len(positions) <= _LARGEST_SAMPLE:
        return positions
    return positions[np.sort(rng.choice(len(positions), _LARGEST_SAMPLE, replace=False))]


def _choose(table: pd.DataFrame) -> int:
    real = table[(table.index > 1) & (table["stability"] >= STABLE) & (table["gain"] >= GAIN)]
    if real.empty:
        return 1
    return int(real.index[real["stability"] >= real["stability"].max() - _TOLERANCE].min())


def _score(sample: FloatArray, number: int, rng: np.random.Generator) -> tuple[float, float]:
    spread = sample.std(axis=0)
    halves = np.array([_split(sample, number, rng) for _ in range(_SPLITS)])
    crowds = [_split(rng.normal(size=sample.shape) * spread, number, rng)[1] for _ in range(_CROWDS)]
    return float(halves[:, 0].mean()), float(np.mean(crowds) - halves[:, 1].mean())


def _split(sample: FloatArray, number: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return the agreement of two halves, and the logarithm of the held-out mean square distance."""
    order = rng.permutation(len(sample))
    seen, unseen = sample[order[: len(order) // 2]], sample[order[len(order) // 2 :]]
    centres, own = nearest_centres(seen, number, rng, 2), nearest_centres(unseen, number, rng, 2)
    agreement = adjusted_rand_score(own.labels_, centres.predict(unseen))
    return float(agreement), float(np.log(max(-centres.score(unseen) / len(unseen), 1e-12)))
