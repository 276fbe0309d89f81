"""Features of the Gaussian process: shares of the work, the device, the software stack, on fixed scales."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.operators.kernel import KINDS, MATRIX_KINDS

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


def gp_features(table: pd.DataFrame, terms: pd.DataFrame, coefficients: pd.Series) -> list[FloatArray]:
    """Features of the network, the device and the stack: three arrays with a row a job each.

    Parameters
    ----------
    table : DataFrame
        Columns of `gpudemand.cost.features_from_jobs`.
    terms : DataFrame
        Of `step_terms`, the columns of `coefficients`.
    coefficients : Series
        Multiple of the datasheet's bound, by term.
    """
    return [_network(terms * _relative_speed(table, terms), coefficients), _device(table), _stack(table)]


def new_kinds(network: FloatArray, training: FloatArray) -> str:
    """Kinds of work that take a larger share in some job than in all of training, for a message.

    Parameters
    ----------
    network, training : ndarray of shape (n_jobs, n_kinds)
        First part of `gp_features`, of the jobs in question and of those in training.

    Examples
    --------
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

    Parameters
    ----------
    kind, term : str
        Second and third part of the name of a column of `step_terms`.

    Examples
    --------
    >>> device_figure("gemm", "flops"), device_figure("softmax", "bytes"), device_figure("start")
    ('peak_tflops', 'bandwidth_gb_s', '')
    """
    if term in ("flops", "tiles"):
        return "peak_tflops" if kind in MATRIX_KINDS else "fp32_tflops"
    return "bandwidth_gb_s" if term in ("bytes", "filters") or kind in ("layout", "update") else ""


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
