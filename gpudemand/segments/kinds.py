"""Which kind of user a rhythm looks like: seven kinds, told apart by a small network that learnt on simulated users.

``python -m gpudemand.segments.kinds`` learns it again and writes ``kinds.json``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.matrix import Matrix
from gpudemand.segments.rhythm import UsageRhythm

#: The kinds of `gpudemand.datasets.make_cluster`, in the order of the network's outputs.
KINDS = ("burst", "nightly", "ramp", "seasonal", "sporadic", "steady", "weekday")
_WEIGHTS = Path(__file__).with_name("kinds.json")
_FIRST_SEED = 31_000


class UserKinds(UsageRhythm):
    """Square roots of the probabilities that a user is of each of seven kinds, as far as simulated users tell.

    A network with one hidden layer of 24 units turns the traits of `UsageRhythm` into the probabilities. It has seen
    simulated users only (`gpudemand.datasets.make_cluster`, seeds from 31,000 on), so it carries their assumptions: it
    knows what luck and size do to the traits of a kind, which no set of real users without labels can tell. Distances
    between rows are Hellinger distances (times the root of two).

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=180, freq="D")
    >>> rng = np.random.default_rng(0)
    >>> office = rng.lognormal(0, 1, 180) * (days.day_of_week < 5) * (rng.random(180) < 0.6)
    >>> block = UserKinds().set_output(transform="pandas")
    >>> (block.fit_transform(pd.DataFrame([office], columns=days)) ** 2).round(1).T[0].idxmax()
    'weekday'
    """

    def _features(self, matrix: Matrix) -> FloatArray:
        traits = super()._features(matrix)
        network = _network()
        hidden = np.maximum(
            (traits - network["mean"]) / network["scale"] @ network["hidden"] + network["hidden_bias"], 0
        )
        scores = hidden @ network["out"] + network["out_bias"]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.sqrt(weights / weights.sum(axis=1, keepdims=True))

    def _names(self) -> Sequence[str]:
        return KINDS


@cache
def _network() -> dict[str, FloatArray]:
    return {name: np.array(value) for name, value in json.loads(_WEIGHTS.read_text()).items()}


def learn_kinds() -> dict[str, Any]:
    """Learn the network from simulated clusters of several lengths, sizes and degrees of noise.

    Returns
    -------
    dict
        What ``kinds.json`` holds: means and scales of the traits, weights and biases of the two layers.
    """
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    samples = [_sample(_FIRST_SEED + number, *setting) for number, setting in enumerate(_settings())]
    traits = np.vstack([sample[0] for sample in samples])
    kinds = np.concatenate([sample[1] for sample in samples])
    scaler = StandardScaler().fit(traits)
    network = MLPClassifier((24,), alpha=0.3, max_iter=400, early_stopping=True, random_state=0)
    network.fit(scaler.transform(traits), kinds)
    arrays = (scaler.mean_, scaler.scale_, *network.coefs_, *network.intercepts_)
    names = ("mean", "scale", "hidden", "out", "hidden_bias", "out_bias")
    return {name: np.round(array, 4).tolist() for name, array in zip(names, arrays, strict=True)}


def _settings() -> list[tuple[int, float, float]]:
    """Days, signal to noise, and GPUs per user of the simulated clusters; each combination twice."""
    return [*product((60, 120, 180, 365), (0.3, 1.0, 3.0), (2.0, 10.0))] * 2


def _sample(seed: int, n_days: int, signal_to_noise: float, gpus: float) -> tuple[FloatArray, pd.Series]:
    from gpudemand.datasets import make_cluster
    from gpudemand.usage import to_wide, usage_series

    jobs, truth = make_cluster(
        140, n_days, archetypes=KINDS, signal_to_noise=signal_to_noise, gpus_per_user=gpus, random_state=seed
    )
    wide = to_wide(usage_series(jobs, by="user", freq="D"))
    return UsageRhythm().fit_transform(wide), truth.set_index("user")["archetype"].loc[wide.index]


if __name__ == "__main__":
    _WEIGHTS.write_text(json.dumps(learn_kinds()) + "\n")
