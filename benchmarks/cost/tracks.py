"""Tracks of the benchmark: training and test rows, with families, devices or sizes held out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, IntArray


class Fold(NamedTuple):
    """Positions of training, test and (of a new device) calibration rows; a name if it is reported by itself."""

    train: IntArray
    test: IntArray
    calibrate: IntArray | None = None
    name: str = ""


class Track(NamedTuple):
    """One held-out evaluation.

    Attributes
    ----------
    sources : tuple of str
        Projects whose rows are used.
    rows : callable
        Filter on them.
    group : str
        Column of the groups in `fit`.
    folds : callable
        ``folds(jobs, testable) -> list of Fold``, for the rows of one folder.
    aim : tuple of float
        Targets for the median and the 90th percentile of the relative error.
    calibrated : bool
        One row of every held-out device is for calibration.
    extends : bool
        Tests extrapolation of the same jobs, a part of which is always in the training set.
    beside : tuple of str
        Projects whose rows are only for training.
    one_of : tuple of str
        Columns: of all rows that agree in them, one drawn at random is used.
    """

    sources: tuple[str, ...]
    rows: Callable[[pd.DataFrame], pd.Series]
    group: str
    folds: Callable[[pd.DataFrame, BoolArray], list[Fold]]
    aim: tuple[float, float]
    calibrated: bool = False
    extends: bool = False
    beside: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()

    def testable(self, jobs: pd.DataFrame) -> BoolArray:
        """Rows of the sources."""
        return np.asarray(jobs["source"].isin(self.sources))


def held_out(column: str, n_folds: int | None = None) -> Callable[..., list[Fold]]:
    """Hold out every value of a column in turn, or in `n_folds` folds of whole values."""

    def folds(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
        keys = jobs[column].astype(object).to_numpy()
        values = pd.Series(keys[testable]).value_counts().index.to_numpy(dtype=object)
        fold = {value: number % (n_folds or len(values)) for number, value in enumerate(values)}
        number = np.array([fold.get(key, -1) for key in keys])
        return [
            Fold(np.flatnonzero(number != i), np.flatnonzero(testable & (number == i))) for i in range(max(number) + 1)
        ]

    return folds


#: Trait of networks -> kinds of kernels, and the share of the work (at the peaks) from which a network has it.
_TRAITS = {
    "grouped convolutions": (("conv_grouped",), 0.05),
    "depthwise convolutions": (("conv_depthwise",), 0.25),
    "attention": (("matmul", "attention"), 0.02),
    "layer normalisation": (("layer_norm",), 0.04),
    "matrix products": (("gemm",), 0.1),
    "large convolutions": (("conv_large",), 0.1),
    "element-wise chains": (("pointwise",), 0.3),
    "moves": (("move",), 0.1),
    "reductions": (("reduce",), 0.06),
}
#: Rows of a fold with a trait, and the largest share of all rows that may have it.
_MIN_TEST, _MAX_TEST = 10, 0.8
#: Of the draw of the sealed families.
_SEED = 20261122


def with_trait(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Hold out all families in which a network has a trait, a fold for each trait."""
    work = jobs[[name for name in jobs if name.startswith("work:") and name.endswith((":bytes", ":flops"))]]
    kinds = np.array([name.split(":")[1] for name in work.columns])
    shares = work.T.groupby(kinds).sum().T.div(work.sum(axis=1), axis=0)
    folds = []
    for name, (found, least) in _TRAITS.items():
        has = shares.reindex(columns=list(found), fill_value=0.0).sum(axis=1) > least
        test = testable & jobs["family"].isin(jobs["family"][has].unique()).to_numpy()
        if _MIN_TEST <= test.sum() <= _MAX_TEST * len(jobs):
            folds.append(Fold(np.flatnonzero(~test), np.flatnonzero(test), name=name))
    return folds


def sealed(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Hold out a third of the families, drawn once."""
    families = np.sort(jobs["family"].astype(str).unique())
    drawn = np.random.default_rng(_SEED).choice(families, len(families) // 3, replace=False)
    test = testable & jobs["family"].isin(drawn).to_numpy()
    return [Fold(np.flatnonzero(~test), np.flatnonzero(test))]


def within(track: Track, jobs: pd.DataFrame) -> list[Fold]:
    """Folds of one folder."""
    return [_calibrated(fold, jobs) if track.calibrated else fold for fold in track.folds(jobs, track.testable(jobs))]


def across(track: Track, jobs: pd.DataFrame, n_train: int) -> list[Fold]:
    """One fold of two concatenated folders: train on the first, test the groups that are new in the second."""
    train, other, testable = np.arange(n_train), jobs.iloc[n_train:], track.testable(jobs)[n_train:]
    if track.extends:
        (fold,) = track.folds(other.reset_index(drop=True), testable)
        if fold.calibrate is not None:
            return [Fold(train, n_train + fold.test, n_train + fold.calibrate)]
        return [Fold(np.concatenate([train, n_train + fold.train]), n_train + fold.test)]
    new = testable & ~other[track.group].isin(jobs[track.group].iloc[:n_train].unique()).to_numpy()
    fold = Fold(train, n_train + np.flatnonzero(new if new.any() else testable))
    return [_calibrated(fold, jobs) if track.calibrated else fold]


def _calibrated(fold: Fold, jobs: pd.DataFrame) -> Fold:
    """Move one random row of every held-out device from the test to the calibration set."""
    test = jobs.iloc[fold.test].assign(position=fold.test)
    known = test.groupby("device_name", sort=False).sample(1, random_state=0)["position"].to_numpy()
    return Fold(fold.train, np.setdiff1d(fold.test, known), known)


def both(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Hold out family and device together."""
    families, dies = held_out("family", 8)(jobs, testable), held_out("device_die", 4)(jobs, testable)
    pairs = [(a, b) for a in families for b in dies]
    folds = [Fold(np.intersect1d(a.train, b.train), np.intersect1d(a.test, b.test)) for a, b in pairs]
    return [fold for fold in folds if len(fold.test)]


#: Years of release that generations begin with: Turing and Volta, Ampere, Hopper and Ada.
_GENERATIONS = (2017, 2020, 2022)


def newer_generations(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Hold out each generation of GPUs together with all newer ones, as for a GPU that nobody has yet."""
    year, folds = jobs["device_year"].astype(float).to_numpy(), []
    for first, after in zip(_GENERATIONS, (*_GENERATIONS[1:], np.inf), strict=True):
        test = testable & (year >= first) & (year < after)
        if test.sum() >= _MIN_TEST and (year < first).sum() >= _MIN_TEST:
            folds.append(Fold(np.flatnonzero(year < first), np.flatnonzero(test), name=f"{first} on"))
    return folds


def beyond_batch(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Calibrate on batches up to a quarter of the largest of each curve, test on the larger ones."""
    curve = [jobs[name] for name in ("source", "network", "host", "device_name", "precision")]
    bound = jobs.groupby(curve)["batch_size"].transform("max") / 4.0
    smallest = jobs.groupby(curve)["batch_size"].transform("min")
    small = (jobs["batch_size"] <= np.maximum(bound, smallest)).to_numpy()
    return [Fold(np.flatnonzero(~testable), np.flatnonzero(testable & ~small), np.flatnonzero(testable & small))]


def more_gpus(jobs: pd.DataFrame, testable: BoolArray) -> list[Fold]:
    """Train on one and two GPUs, test on eight."""
    same = [jobs[name] for name in ("network", "device_name", "precision")]
    few, many = jobs["n_gpus"] <= 2, jobs["n_gpus"] == 8
    known = (few.astype(int).groupby(same).transform("sum") > 0) & many
    return [Fold(np.flatnonzero(few), np.flatnonzero(known & testable))]


def _trained(jobs: pd.DataFrame) -> pd.Series:
    return (jobs["mode"] == "train") & (jobs["n_gpus"] == 1)


def _timm_stack(jobs: pd.DataFrame) -> pd.Series:
    return (
        _trained(jobs)
        & (jobs["layout"] == "contiguous")
        & (jobs["execution"] == "eager")
        & (jobs["framework_version"] == "1.12")
    )


def _several(jobs: pd.DataFrame) -> pd.Series:
    return (jobs["mode"] == "train") & jobs["n_gpus"].isin([1, 2, 8])


def _one_machine(jobs: pd.DataFrame) -> pd.Series:
    return _trained(jobs) & (jobs["n_nodes"] == 1)


def _inference(jobs: pd.DataFrame) -> pd.Series:
    return (jobs["mode"] == "infer") & (jobs["device"] == "cuda")


#: Of inference there are ten times as many rows as of training.
_STACK = ("family", "device_name", "framework_version", "layout", "execution")
_PUBLIC = ("lambda_pytorch", "lambda_tensorflow", "pytorch_gpu_benchmark")
TRACKS = {
    "family": Track(("timm",), _timm_stack, "family", held_out("family", 8), (0.05, 0.15)),
    "novelty": Track(("timm",), _timm_stack, "family", with_trait, (0.05, 0.15)),
    "sealed": Track(("timm",), _timm_stack, "family", sealed, (0.07, 0.22)),
    "inference": Track(("timm",), _inference, "family", held_out("family", 8), (0.1, 0.3), one_of=_STACK),
    "device": Track(("lambda_pytorch",), _trained, "device_die", held_out("device_die"), (0.07, 0.20)),
    "calibrated": Track(
        ("lambda_pytorch",), _trained, "device_die", held_out("device_die"), (0.04, 0.12), calibrated=True
    ),
    "device-tensorflow": Track(("lambda_tensorflow",), _trained, "device_die", held_out("device_die"), (0.07, 0.20)),
    "device-pytorch": Track(("pytorch_gpu_benchmark",), _trained, "device_die", held_out("device_die"), (0.07, 0.20)),
    "generation": Track(_PUBLIC, _trained, "family", newer_generations, (0.12, 0.32), beside=("timm", "neusight")),
    "both": Track(_PUBLIC, _trained, "family", both, (0.10, 0.30), beside=("timm", "neusight")),
    "batch": Track(
        ("sia_pollux",), _one_machine, "family", beyond_batch, (0.04, 0.07), extends=True, beside=(*_PUBLIC, "timm")
    ),
    "gpus": Track(("lambda_pytorch",), _several, "device_die", more_gpus, (0.06, 0.20), extends=True),
    "transformers": Track(
        ("neusight",), lambda jobs: jobs["n_gpus"] == 1, "device_die", held_out("device_die"), (0.1, 0.3)
    ),
}
