"""How many segments there are: as many as come back among other users, and hold together better than a single crowd."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.clustering.centres import nearest_centres

#: How much of a segment must come back among fewer users, and how much better than in one crowd of the same spread
#: segments must predict unseen users, in natural logarithms. Less where users are too far apart to be of one kind.
STABLE, GAIN = 0.9, 0.25
WIDE_STABLE, WIDE_GAIN = 0.6, 0.15
#: Users up to which that is so; among more, luck gains less, by the root of their number.
_FEW = 150
#: Variance of users of one kind at most, in mean square distances between those who are alike.
_ONE_KIND = 3.0
#: Of numbers whose merits differ by less than their draws do, the smallest is taken.
AS_GOOD = 0.96
_SCORES = ("stability", "gain", "closeness")
_DRAWS, _CROWDS, _SEEN = 12, 6, 0.75
_LARGEST_SAMPLE, _USERS_PER_SEGMENT = 2000, 8


class Selection(NamedTuple):
    """The number of segments, and the table it was read from (index ``n_segments``)."""

    n_segments: int
    table: pd.DataFrame


def select_n_segments(
    positions: FloatArray, max_segments: int, rng: np.random.Generator, *, floor: float = 0.0
) -> Selection:
    """Choose the number of segments by stability and held-out likelihood; one if there is a single population.

    For each number, three quarters of the users are clustered on their own, twelve times. *Stability* is how much of
    a user's segment comes back on average: its mean Jaccard index with the segment of the fewer users that is most
    like it, everybody being assigned. *Gain* is how much the logarithm of the mean square distance of the users left
    out to the nearest centre falls below that in a Gaussian crowd of the same spread (the held-out likelihood of a
    spherical mixture, but for constants); its median with the numbers on both sides counts. *Closeness* is how much it
    falls below that to the centre of all users. Of the numbers with a stability of at least 0.9 and a gain of at least
    0.25, the smallest one is chosen whose product of stability and closeness is within 4 % of the largest. Where the
    variance of all users is more than three times `floor`, no single kind is that wide, and 0.6 and 0.15 are enough.
    Among more than 150 users luck gains less, and the gain that it takes falls with the root of their number.

    Parameters
    ----------
    positions : ndarray, shape (n_users, n_dimensions)
        Uncorrelated coordinates, as principal axes are. Of more than 2,000 users a sample is used.
    max_segments : int
        Largest number to try; also no more than one for every eight users.
    rng : Generator
    floor : float, default=0
        Mean square distance of users who are alike; it is added to all of them. 0 if unknown.

    Returns
    -------
    Selection

    References
    ----------
    C. Hennig, *Cluster-wise assessment of cluster stability*, CSDA 52, 2007; R. Tibshirani, G. Walther and T. Hastie,
    *Estimating the number of clusters in a data set via the gap statistic*, JRSS B 63, 2001.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> crowd = rng.normal(size=(80, 3))
    >>> select_n_segments(crowd, 5, rng).n_segments
    1
    >>> select_n_segments(np.vstack([crowd, crowd + 9]), 5, rng).n_segments
    2
    """
    sample = _sample(positions, rng)
    most = min(max_segments, len(sample) // _USERS_PER_SEGMENT)
    rows = {number: _score(sample, number, rng, floor) for number in range(2, most + 1)}
    table = pd.DataFrame.from_dict({1: (1.0, 0.0, 0.0), **rows}, orient="index", columns=list(_SCORES))
    wide = 0.0 < _ONE_KIND * floor < sample.var(axis=0).sum()
    stable, gain = (WIDE_STABLE, WIDE_GAIN) if wide else (STABLE, GAIN)
    return Selection(
        _choose(table, stable, gain * min(np.sqrt(_FEW / len(sample)), 1.0)), table.rename_axis("n_segments")
    )


def recovered(labels: IntArray, again: IntArray) -> FloatArray:
    """Return the largest Jaccard index of each segment with any of the new ones.

    Examples
    --------
    >>> recovered(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 1])).round(2).tolist()
    [0.67, 0.5]
    """
    overlap = np.zeros((labels.max() + 1, again.max() + 1))
    np.add.at(overlap, (labels, again), 1)
    union = overlap.sum(axis=1, keepdims=True) + overlap.sum(axis=0, keepdims=True) - overlap
    return np.asarray((overlap / np.maximum(union, 1)).max(axis=1))


def _sample(positions: FloatArray, rng: np.random.Generator) -> FloatArray:
    if len(positions) <= _LARGEST_SAMPLE:
        return positions
    return positions[np.sort(rng.choice(len(positions), _LARGEST_SAMPLE, replace=False))]


def _choose(table: pd.DataFrame, least_stable: float, least_gain: float) -> int:
    # A gain that the numbers beside it do not share is luck.
    several = table.loc[2:]
    gain = several["gain"].rolling(3, center=True).median().fillna(several["gain"])
    better = (several[["gain", "closeness"]] > 0).all(axis=1)
    real = (gain >= least_gain) & better & (several["stability"] >= least_stable)
    merit = (several["stability"] * several["closeness"])[real]
    return int(merit.index[merit >= AS_GOOD * merit.max()].min()) if real.any() else 1


def _score(sample: FloatArray, number: int, rng: np.random.Generator, floor: float) -> tuple[float, float, float]:
    labels = nearest_centres(sample, number, rng, 5).labels_
    draws = [_draw(sample, number, rng, floor) for _ in range(_DRAWS)]
    back = np.mean([recovered(labels, centres.predict(sample)) for centres, _ in draws], axis=0)
    spread = sample.std(axis=0)
    crowds = [rng.normal(size=sample.shape) * spread for _ in range(_CROWDS)]
    apart = np.mean([_draw(crowd, number, rng, floor)[1] for crowd in crowds for _ in range(_DRAWS // _CROWDS)])
    left = np.mean([distance for _, distance in draws])
    return float(back[labels].mean()), float(apart - left), _log_distance(float((spread**2).sum()), floor) - float(left)


def _draw(sample: FloatArray, number: int, rng: np.random.Generator, floor: float) -> tuple[KMeans, float]:
    """Return centres of some of the users, and the logarithm of the mean square distance of the others to them."""
    order = rng.permutation(len(sample))
    n_seen = int(_SEEN * len(sample))
    centres = nearest_centres(sample[order[:n_seen]], number, rng, 3)
    unseen = sample[order[n_seen:]]
    return centres, _log_distance(-centres.score(unseen) / len(unseen), floor)


def _log_distance(square: float, floor: float) -> float:
    return float(np.log(max(floor + square, 1e-12)))
