"""Gaussian-process regression on three groups of features: network, device and software stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve

from gpudemand._typing import BoolArray, FloatArray

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

    References
    ----------
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
    """Posterior means of the same networks and stacks on each of several devices, shape (n_devices, n_jobs).

    Parameters
    ----------
    jobs, training : Inputs
    dual_coef : ndarray of shape (n_training,)
        As `fit` returned it.
    devices : iterable of ndarray
        Features in place of those of the devices of `jobs`.
    """
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

    Returns
    -------
    dual_coef : ndarray of shape (n_rows,)
        ``kernel(new, inputs)[1] @ dual_coef`` is the posterior mean.
    held_out : ndarray of shape (n_rows,)
        Posterior mean of each row given the other groups.
    distances : ndarray of shape (n_rows,)
        See `distance`, with respect to the other groups.

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, section 5.4.2.
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

    Attributes
    ----------
    rows : list of ndarray
        Their inputs.
    weights : ndarray of shape (n_rows,)
    training_weights : ndarray of shape (n_training,)
        What changes in the weights of the training rows.
    common_variance : float
        Of their common effect, as a multiple of the signal's.
    """

    rows: list[FloatArray]
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
    likely (empirical Bayes).

    Parameters
    ----------
    training : Inputs
    dual_coef : ndarray of shape (n_training,)
        As `fit` returned it.
    rows : list of ndarray
        Inputs of the new rows.
    y : ndarray of shape (n_rows,)

    References
    ----------
    Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, sections 2.2 and 5.4.1.
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
    return Condition(rows, weights, -gain @ weights, chosen)


def _log_likelihood(covariance: FloatArray, y: FloatArray) -> float:
    """Logarithm of the normal density, but for a constant."""
    return -0.5 * float(y @ solve(covariance, y, assume_a="pos") + np.linalg.slogdet(covariance)[1])
