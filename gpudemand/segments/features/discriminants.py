"""The directions in which kinds of users differ: what each trait of their days adds to them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpudemand._typing import FloatArray

N_DIRECTIONS = 8
#: Most standard deviations that a trait counts for.
FARTHEST = 4.0
#: Usual value and standard deviation of each trait of `UsageRhythm`, and what one deviation adds to each direction.
DIRECTIONS: Mapping[str, tuple[float, ...]] = {
    "days": (4.49, 1.01, -2.06, 1.93, -0.07, 0.44, 0.00, 0.09, 0.24, -0.02),
    "weekdays": (0.67, 0.27, 0.50, -0.53, 0.15, -0.33, 0.90, 0.07, -0.96, -0.53),
    "weekend_off": (0.06, 0.15, -0.04, 0.18, -0.15, -0.32, 0.55, -0.53, 0.14, 0.03),
    "pause": (0.65, 0.74, -0.12, 0.88, -0.02, 0.56, 0.15, -0.53, -0.93, -0.68),
    "uneven_pauses": (0.44, 0.34, 0.99, 0.46, -0.46, -0.18, 0.41, 0.24, -0.18, 0.05),
    "spread": (3.18, 1.10, 0.30, -0.21, -0.29, -0.08, -0.04, 0.10, 0.44, -0.07),
    "growth": (0.02, 0.18, 0.11, 0.06, -0.33, 0.28, 0.08, -0.21, -0.27, 0.67),
    "memory": (0.31, 0.24, 1.23, 0.55, 1.32, -0.96, -0.63, -0.25, -0.04, 0.16),
    "trend": (0.01, 0.16, 0.00, -0.05, 0.55, 0.16, 0.16, 0.10, 0.22, -0.29),
    "rise": (0.02, 0.19, -0.30, -0.02, -1.11, -1.07, -0.75, 0.03, -0.18, -0.36),
    "clumping": (0.16, 0.36, 0.16, -0.27, -0.46, 0.16, 0.32, 0.61, 0.06, 0.06),
}


def along(traits: FloatArray) -> FloatArray:
    """Return where users stand along the directions, two of a kind being about a unit apart.

    The directions are linear discriminants: weighted sums of traits that part known kinds the farthest. They were
    learned on simulated clusters of seven kinds and on series of six kinds with noise (`make_cluster`
    and ``benchmarks/segments/series.py``, 90 to 365 days, signal to noise 6 to 0.3, seeds 1,000 to 1,006) by
    ``benchmarks/segments/directions.py``, which prints the table. Other kinds may come out less clearly.

    Parameters
    ----------
    traits : ndarray, shape (n_users, 11)
        Traits of days in the order of `DIRECTIONS`.

    Returns
    -------
    ndarray, shape (n_users, 8)

    References
    ----------
    R. A. Fisher, *The use of multiple measurements in taxonomic problems*, Annals of Eugenics 7, 1936.

    Examples
    --------
    >>> usual = np.array([[row[0] for row in DIRECTIONS.values()]])
    >>> along(usual).round(2).tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    usual, spread, *weights = np.transpose(list(DIRECTIONS.values()))
    return np.asarray(np.clip((traits - usual) / spread, -FARTHEST, FARTHEST) @ np.transpose(weights))
