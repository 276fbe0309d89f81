"""Gaussian process of the errors of a sum of work, and the scale of what it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.ensemble import GradientBoostingRegressor

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.cost.operators import KINDS, MATRIX_KINDS

#: Features of jobs: an array of shape (n_jobs, n_features) for the network, the device and the stack.
Inputs = Sequence[FloatArray]
#: Length scales of network, device and stack. With a longer one of the network, the correction speaks further from what
#: it was learned on (``python -m benchmarks.cost --track novelty family device``).
_LENGTH_SCALES = (0.7, 12.0, 4.0)
#: Variance of the effects of device and stack that all networks share, as a multiple of the signal's.
_SHARED_VARIANCE = 0.3
#: Of the residual, as a multiple of the signal's: repeated measurements of a job differ by some percent.
_NOISE_VARIANCE = 0.01
#: Variances of an effect that rows of a condition have in common, as multiples of the signal's. The least holds unless
#: another is more likely at a significance of 5 %: half the range of chi-squared with one degree of freedom is 1.92
#: (``python -m benchmarks.cost --track calibrated``).
_COMMON_VARIANCES, _MORE_LIKELY = 0.03 * 10.0 ** np.arange(0.0, 3.5, 0.5), 1.92


def kernel(left: Inputs, right: Inputs, training: Inputs | None = None) -> tuple[FloatArray, FloatArray]:
    """Similarity and covariance of jobs, each of shape (n_left, n_right); `right` is `training` by default.

    The similarity, 1 for jobs with the same features, is the product of exponential kernels of network, device and
    stack. The covariance is an ANOVA kernel: effects of the network, alone and together with device and stack, with
    equal variances, and effects of device and stack on all networks, centred over the training jobs. It has no
    constant: residuals of the sum of work are skewed, and their mean would be all that is said of networks unlike all
    others, for which it is wrong.

    Durrande, Ginsbourger, Roustant, Carraro, "ANOVA kernels and RKHS of zero mean functions for model-based sensitivity
    analysis", Journal of Multivariate Analysis 115, 2013.
    """
    # Jobs are many, devices and stacks few: their kernels are computed once for each pair.
    (kinds, which), (known, of), (trained, at) = (
        np.unique(np.hstack(part[1:]), axis=0, return_inverse=True) for part in (left, right, training or right)
    )
    split, pairs = left[1].shape[1], np.ix_(which.ravel(), of.ravel())
    product, shared = _device_and_stack(kinds, known, split)
    weights = np.bincount(at.ravel()) / at.size
    of_left, of_right, of_all = (
        _device_and_stack(part, trained, split)[1] @ weights for part in (kinds, known, trained)
    )
    effects = shared - of_left[:, None] - of_right + weights @ of_all
    network = _exponential_kernel(left[0], right[0], _LENGTH_SCALES[0])
    return network * product[pairs], network * shared[pairs] + (_SHARED_VARIANCE * effects)[pairs]


def means_on_devices(
    jobs: Inputs, training: Inputs, dual_coef: FloatArray, devices: Iterable[FloatArray]
) -> FloatArray:
    """Posterior means of the same networks and stacks on each of several devices, shape (n_devices, n_jobs)."""
    known, of = np.unique(np.hstack(training[1:]), axis=0, return_inverse=True)
    split, order = training[1].shape[1], np.argsort(of.ravel())
    starts = np.searchsorted(of.ravel()[order], np.arange(len(known)))
    network = _exponential_kernel(jobs[0], training[0], _LENGTH_SCALES[0]) * dual_coef
    # What depends on the network is summed over the few pairs of device and stack once, for all devices.
    by_pair, total = (np.add.reduceat(part[..., order], starts, axis=-1) for part in (network, dual_coef))
    contrast = total - np.bincount(of.ravel()) / of.size * total.sum()
    by_pair += _SHARED_VARIANCE * contrast
    of_all = _device_and_stack(known, known, split)[1] @ (np.bincount(of.ravel()) / of.size)
    means = []
    for device in devices:
        kinds, which = np.unique(np.hstack([device, jobs[2]]), axis=0, return_inverse=True)
        means.append((by_pair * _device_and_stack(kinds, known, split)[1][which.ravel()]).sum(axis=1))
    return np.array(means) - _SHARED_VARIANCE * (contrast @ of_all)


def _device_and_stack(left: FloatArray, right: FloatArray, split: int) -> tuple[FloatArray, FloatArray]:
    """Products of the kernels of device and stack, the first `split` and other columns, and of one plus each."""
    device = _exponential_kernel(left[:, :split], right[:, :split], _LENGTH_SCALES[1])
    stack = _exponential_kernel(left[:, split:], right[:, split:], _LENGTH_SCALES[2])
    return device * stack, (1.0 + device) * (1.0 + stack) / 4.0


def _exponential_kernel(a: FloatArray, b: FloatArray, length_scale: float) -> FloatArray:
    """Exponential (Matern 1/2) kernel, computed in place."""
    squared = a @ b.T
    squared *= -2.0
    squared += (a**2).sum(axis=1)[:, None]
    squared += (b**2).sum(axis=1)[None, :]
    distances = np.sqrt(np.maximum(squared, 0.0, out=squared), out=squared)
    return np.asarray(np.exp(np.divide(distances, -length_scale, out=distances), out=distances))


def fit(inputs: Inputs, y: FloatArray, groups: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit, and predict each group of rows from all others in closed form.

    Returns weights of the rows (``kernel(new, inputs)[1] @ dual_coef`` is the posterior mean), the posterior mean of
    each row given the other groups, and its `distance` from these. Rasmussen and Williams, "Gaussian Processes for
    Machine Learning", MIT Press 2006, section 5.4.2.
    """
    similarity, covariance = kernel(inputs, inputs)
    precision = np.linalg.inv(covariance + _NOISE_VARIANCE * np.eye(len(y)))
    dual_coef = precision @ y
    held_out = np.empty(len(y))
    for group in np.unique(groups):
        rows: BoolArray = groups == group
        held_out[rows] = y[rows] - np.linalg.solve(precision[np.ix_(rows, rows)], dual_coef[rows])
    others = np.where(groups[:, None] == groups[None, :], 0.0, similarity)
    return dual_coef, held_out, distance(others)


def distance(similarity: FloatArray) -> FloatArray:
    """Distance from the nearest training job, minus the logarithm of `kernel`'s similarity, shape (n_new,)."""
    return -np.log(similarity.max(axis=1, initial=np.finfo(float).tiny))


class Condition(NamedTuple):
    """More rows that a fitted process is conditioned on; they have an effect in common, which training has not.

    `measured`: log residuals of the rows. `training_weights`: what changes in the weights of the training rows.
    `common_variance`: of the effect, as a multiple of the signal's.
    """

    rows: list[FloatArray]
    measured: FloatArray
    weights: FloatArray
    training_weights: FloatArray
    common_variance: float

    def change(self, inputs: Inputs, covariance: FloatArray, training: Inputs) -> FloatArray:
        """Change of the posterior mean of jobs that share the effect, from their covariance with training jobs."""
        common = kernel(inputs, self.rows, training)[1] + self.common_variance
        return np.asarray(covariance @ self.training_weights + common @ self.weights)


def condition(training: Inputs, dual_coef: FloatArray, rows: list[FloatArray], y: FloatArray) -> Condition:
    """Condition a fitted process on more rows.

    The variance of their common effect is the most likely one, given the process, or a small one if that is about as
    likely (empirical Bayes; Rasmussen and Williams, sections 2.2 and 5.4.1).
    """
    noisy = kernel(training, training)[1] + _NOISE_VARIANCE * np.eye(len(dual_coef))
    signal = max(float(dual_coef @ noisy @ dual_coef) / len(dual_coef), np.finfo(float).tiny)
    across = kernel(rows, training)[1]
    gain = solve(noisy, across.T, assume_a="pos")
    posterior = kernel(rows, rows, training)[1] - across @ gain + _NOISE_VARIANCE * np.eye(len(y))
    error = y - across @ dual_coef
    likelihoods = [_log_likelihood(signal * (posterior + variance), error) for variance in _COMMON_VARIANCES]
    most = int(np.argmax(likelihoods))
    chosen = float(_COMMON_VARIANCES[most if likelihoods[most] - likelihoods[0] > _MORE_LIKELY else 0])
    weights = solve(posterior + chosen, error, assume_a="pos")
    return Condition(rows, y, weights, -gain @ weights, chosen)


def _log_likelihood(covariance: FloatArray, y: FloatArray) -> float:
    """Logarithm of the normal density, but for a constant."""
    return -0.5 * float(y @ solve(covariance, y, assume_a="pos") + np.linalg.slogdet(covariance)[1])


_KINDS = (*KINDS, "layout", "update", "start", "allreduce", "network")
#: Factor on the square roots of shares.
_SCALE = 3.0
#: Share of the work by which a kind must exceed all of training to be named as new.
_NEW_SHARE = 0.1
#: The device at which shares are taken: TFLOP/s of matrix and of other units, and GB/s.
_REFERENCE = {"peak_tflops": 100.0, "fp32_tflops": 20.0, "bandwidth_gb_s": 1000.0}
#: Multiprocessors of a device that does not say how many it has.
USUAL_SMS = 80.0
#: Device figure -> imputed value, and scale of its binary logarithm. Neither the peak of matrix units nor the
#: cache is among them: with less of either, no job is predicted to be faster.
_DEVICE = {
    "bandwidth_gb_s": (900.0, 1.0),
    "fp32_tflops": (20.0, 1.0),
    "sms": (USUAL_SMS, 1.0),
}
#: Imputed year of release, and years to a unit.
_YEAR = (2020.0, 3.0)
_STACK = {
    "precision": ("fp32", "tf32", "fp16", "bf16"),
    "layout": ("contiguous", "channels_last"),
    "framework": ("torch", "keras", "tensorflow"),
    "execution": ("eager", "compiled"),
    "mode": ("train", "infer"),
    "device": ("cpu", "cuda"),
}
#: Imputed version, of the newest framework in the training data.
_VERSION = 2.9


def features(table: pd.DataFrame, terms: pd.DataFrame, coefficients: pd.Series) -> list[FloatArray]:
    """Features of the network, the device and the stack: three arrays with a row a job each."""
    return [_network(terms * _relative_speed(table, terms), coefficients), _device(table), _stack(table)]


def new_kinds(network: FloatArray, training: FloatArray) -> str:
    """Kinds of work that take a larger share in some job than in all of training, for a message.

    >>> training = np.zeros((2, len(_KINDS)))
    >>> network = training.copy()
    >>> network[1, _KINDS.index("attention")] = 3.0 * np.sqrt(0.4)
    >>> new_kinds(network, training)
    'attention (up to 40 % of the work, in training 0 %)'
    """
    most, known = ((part**2).max(axis=0) / _SCALE**2 for part in (network, training))
    found = [
        f"{kind} (up to {share:.0%} of the work, in training {before:.0%})".replace("%", " %")
        for kind, share, before in zip(_KINDS, most, known, strict=True)
        if share > before + _NEW_SHARE
    ]
    return ", ".join(found)


def _relative_speed(table: pd.DataFrame, terms: pd.DataFrame) -> FloatArray:
    """Speed of the device at each term's work over that of the reference device, shape (n_jobs, n_terms)."""
    known = table.assign(device_fp32_tflops=table["device_fp32_tflops"].fillna(table["device_peak_tflops"]))
    speeds = {name: known[f"device_{name}"].to_numpy(dtype=float) / value for name, value in _REFERENCE.items()}
    speeds[""] = np.ones(len(table))
    return np.column_stack([speeds[device_figure(*name.split(":")[1:])] for name in terms.columns])


def device_figure(kind: str, term: str = "") -> str:
    """Figure of the device that a term of work is divided by, empty if none.

    >>> device_figure("gemm", "flops"), device_figure("softmax", "bytes"), device_figure("start")
    ('peak_tflops', 'bandwidth_gb_s', '')
    """
    if term in ("flops", "tiles"):
        return "peak_tflops" if kind in MATRIX_KINDS else "fp32_tflops"
    return "bandwidth_gb_s" if term in ("bytes", "filters", "channels") or kind in ("layout", "update") else ""


def _network(terms: pd.DataFrame, coefficients: pd.Series) -> FloatArray:
    # No sizes: the correction hardly depends on them, so that a larger job is predicted to take longer.
    kinds = np.array([name.split(":")[1] for name in terms.columns])
    seconds = (terms * coefficients).T.groupby(kinds).sum().T.reindex(columns=list(_KINDS), fill_value=0.0).to_numpy()
    return np.asarray(_SCALE * np.sqrt(seconds / seconds.sum(axis=1, keepdims=True)))


def _device(table: pd.DataFrame) -> FloatArray:
    logs = {
        name: scale * np.log2(table[f"device_{name}"].astype(float).fillna(imputed).to_numpy())
        for name, (imputed, scale) in _DEVICE.items()
    }
    logs["fp32_tflops"] = logs["fp32_tflops"] - logs["bandwidth_gb_s"]
    year = table["device_year"].astype(float).fillna(_YEAR[0]).to_numpy() / _YEAR[1]
    return np.column_stack([*logs.values(), year])


def _stack(table: pd.DataFrame) -> FloatArray:
    flags = [(table[name] == value).to_numpy(dtype=float) for name, values in _STACK.items() for value in values]
    version = table["framework_version"].map(_version).to_numpy(dtype=float)
    # Close to each other: how the time grows with the number of GPUs is a matter of the sum of work.
    gpus = 0.5 * np.log2(table["n_gpus"].to_numpy(dtype=float))
    nodes = np.log2(table["n_nodes"].to_numpy(dtype=float)) if "n_nodes" in table.columns else np.zeros(len(table))
    return np.column_stack([*flags, 1.5 * version, gpus, nodes])


def _version(text: object) -> float:
    """``"2.10.1"`` -> 3.0: a major version counts as ten minor ones."""
    parts = str(text).split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return _VERSION
    return int(parts[0]) + int(parts[1]) / 10


#: Rows predicted at a time; bounds the memory.
_CHUNK = 2000


class Trees(NamedTuple):
    """A sum of regression trees and a constant: rows go left up to the threshold, a leaf is its own child."""

    start: FloatArray
    roots: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: FloatArray
    value: FloatArray

    @staticmethod
    def stored(prefix: str) -> dict[str, str]:
        """Types and shapes of the arrays of an ensemble, for `check_arrays`."""
        nodes = {name: ("f" if name in ("threshold", "value") else "i") for name in Trees._fields[2:]}
        sizes = {"start": "f 1", "roots": f"i {prefix}trees"}
        return {f"{prefix}{name}": sizes.get(name, f"{nodes.get(name)} {prefix}nodes") for name in Trees._fields}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], prefix: str, n_features: int) -> Trees:
        """Restore an ensemble; raises `InputError` unless every walk from a root ends at a leaf."""
        trees = cls(*(np.asarray(arrays[f"{prefix}{name}"]) for name in cls._fields))
        own = np.arange(len(trees.left))
        leaf = (trees.left == own) & (trees.right == own)
        later = (trees.left > own) & (trees.right > own) & (np.maximum(trees.left, trees.right) < len(own))
        roots = (trees.roots >= 0) & (trees.roots < len(own))
        features = (trees.feature >= 0) & (trees.feature < n_features)
        if not ((leaf | later).all() and roots.all() and features.all()):
            raise InputError(f"{prefix.rstrip('_')} holds no regression trees over {n_features} features.")
        return trees

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict rows of shape (n_rows, n_features)."""
        # scikit-learn grows trees on single precision.
        rows = np.asarray(X, dtype=np.float32)
        parts = [rows[start : start + _CHUNK] for start in range(0, max(len(rows), 1), _CHUNK)]
        return np.concatenate([self._predict(part) for part in parts])

    def _predict(self, rows: NDArray[np.float32]) -> FloatArray:
        n_trees = len(self.roots)
        at = np.tile(self.roots, len(rows))
        walking = np.arange(at.size)
        while walking.size:
            node = at[walking]
            low = rows[walking // n_trees, self.feature[node]] <= self.threshold[node]
            after = np.where(low, self.left[node], self.right[node])
            at[walking] = after
            walking = walking[after != node]
        return np.asarray(self.start[0] + self.value[at].reshape(len(rows), n_trees).sum(axis=1))


def grow_boosted(X: FloatArray, y: FloatArray, *, n_trees: int, depth: int, random_state: int) -> Trees:
    """Gradient boosting of the absolute error.

    >>> X = np.arange(40.0)[:, None]
    >>> trees = grow_boosted(X, np.where(X[:, 0] < 20, -1.0, 1.0), n_trees=50, depth=2, random_state=0)
    >>> trees.predict(X[[0, 39]]).round(1).tolist()
    [-1.0, 1.0]
    """
    model = GradientBoostingRegressor(
        loss="absolute_error",
        n_estimators=n_trees,
        learning_rate=0.1,
        max_depth=depth,
        subsample=0.7,
        max_features=0.2,
        min_samples_leaf=5,
        random_state=random_state,
    ).fit(X, y)
    return _flat(model.estimators_[:, 0], float(model.init_.constant_.ravel()[0]), model.learning_rate)


def _flat(members: Sequence[Any], start: float, weight: float) -> Trees:
    trees = [member.tree_ for member in members]
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])]).astype(np.int64)
    parts = [_nodes(tree, root, weight) for tree, root in zip(trees, roots[:-1].tolist(), strict=True)]
    return Trees(np.array([start]), roots[:-1], *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _nodes(tree: Any, root: int, weight: float) -> tuple[Any, ...]:
    is_leaf, own = tree.children_left < 0, np.arange(tree.node_count)
    left, right = (np.where(is_leaf, own, children) + root for children in (tree.children_left, tree.children_right))
    values = np.where(is_leaf, weight * tree.value[:, 0, 0], 0.0)
    return left, right, np.maximum(tree.feature, 0), tree.threshold, values


#: Log residuals beyond this are treated as broken measurements; scales lie between the two.
MAX_RESIDUAL, MIN_SCALE = 1.5, 0.01


def fit_error_scale(
    features: FloatArray, errors: FloatArray, folds: Iterable[tuple[Any, Any]], *, n_trees: int, random_state: int
) -> tuple[Trees, FloatArray]:
    """Trees of log absolute errors, and log scales by trees without a row's fold: in-sample ones would be too small."""
    size = np.log(np.clip(np.abs(errors), MIN_SCALE, MAX_RESIDUAL))
    held_out = np.empty(len(size))
    for train, test in folds:
        part = grow_boosted(features[train], size[train], n_trees=n_trees, depth=3, random_state=random_state)
        held_out[test] = part.predict(features[test])
    return grow_boosted(features, size, n_trees=n_trees, depth=3, random_state=random_state), held_out


#: Octaves of bandwidth or peak from one device to the next.
_STEP = 0.5
#: What grows, in the order of `_speeds`. The peak of matrix units is not among the features of the process.
_FIGURES = ("bandwidth_gb_s", "fp32_tflops")


def monotone_correction(
    inputs: Inputs, training: Inputs, dual_coef: FloatArray, terms: pd.DataFrame, coefficients: pd.Series
) -> FloatArray:
    """Posterior means of a Gaussian process, changed where the time would grow with the speed of the device.

    Of the devices in training the one most like a job's in all but bandwidth and peak is where nothing changes. From
    there to the job's device, time is the least so far as bandwidth (or peak) grows, and the most as it falls.
    """
    device = inputs[1]
    first = _speeds(_most_alike(device, training[1]))
    change = _speeds(device) - first
    steps = 1 + np.ceil(np.abs(change).max(axis=0, initial=0.0) / _STEP).astype(int)
    reached = [np.clip(change, -_STEP * np.array(at), _STEP * np.array(at)) for at in np.ndindex(*steps)]
    devices = [_with_speeds(device, first + part) for part in reached]
    work = _log_work(terms, coefficients, [change - part for part in reached])
    times = (means_on_devices(inputs, training, dual_coef, devices) + work).reshape(*steps, -1)
    for axis in (1, 0):
        times = np.where(change[:, axis] < 0, times.max(axis=axis), times.min(axis=axis))
    return times


def _speeds(device: FloatArray) -> FloatArray:
    """Binary logarithms of bandwidth and peak, from the features of devices."""
    return np.column_stack([device[:, 0], device[:, 0] + device[:, 1]])


def _with_speeds(device: FloatArray, speeds: FloatArray) -> FloatArray:
    return np.column_stack([speeds[:, 0], speeds[:, 1] - speeds[:, 0], device[:, 2:]])


def _most_alike(device: FloatArray, training: FloatArray) -> FloatArray:
    """The device in training that is next in what is neither bandwidth nor peak, for each row."""
    known, (own, which) = np.unique(training, axis=0), np.unique(device[:, 2:], axis=0, return_inverse=True)
    distances = np.abs(own[:, None, :] - known[None, :, 2:]).sum(axis=2)
    return known[distances.argmin(axis=1)][which.ravel()]


def _log_work(terms: pd.DataFrame, coefficients: pd.Series, octaves: list[FloatArray]) -> FloatArray:
    """Log ratios of the work if bandwidth and peak are so many octaves lower, shape (n_devices, n_jobs)."""
    figures = np.array([device_figure(*name.split(":")[1:]) for name in terms.columns])
    costs = terms.to_numpy(dtype=float) * coefficients.to_numpy()
    share = np.column_stack([costs[:, figures == name].sum(axis=1) for name in _FIGURES]) / costs.sum(axis=1)[:, None]
    return np.log1p([((2.0**part - 1.0) * share).sum(axis=1) for part in octaves])
