"""How much faster a mix of usual networks runs on one type of GPU than on another."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.cost.parallel import LoRA
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets.devices import Device, device, devices
from gpudemand.datasets.registry import bundled_path

#: Trainings of the mix with their graphs: ``python -m scripts.make_reference_mix``.
PATH = "cost/reference_mix.parquet"
#: Fields of an `OpGraph` that are stored as columns.
ATTRIBUTES = ("framework", "n_parameters", "n_trainable", "n_sparse", "n_tensors", "parameter_bytes", "state_bytes")
#: Language models of 1 to 8 B, trained whole or by adapters: name, tokens, samples at once, checkpointing, adapters.
_DECODERS = (
    ("llama-3.2-1b", 2048, 4, False, None),
    ("qwen2.5-3b", 2048, 4, False, LoRA(16)),
    ("llama-3-8b", 2048, 2, "full", LoRA(16)),
    ("mistral-7b", 2048, 2, "full", LoRA(16, bits=4)),
)
#: Deviations of the log ratio: between types whose dies were measured, of a single network beside it, what a die of
#: which nothing was measured adds, and one of another maker, of which one die was (``--track ratios`` of
#: ``python -m benchmarks.cost``; hypot(0.09, 0.106) is the 0.139 of dies held out).
_OF_PAIR, _OF_NETWORK, _OF_NEW_DIE, _OF_OTHER_MAKER = 0.09, 0.21, 0.106, 0.70
_MEASURED_MAKER, _LEVEL = "NVIDIA", 0.9


class Training(NamedTuple):
    """A training of the mix: its kind, its network or the name of a published model, and options of `TrainingJob`."""

    kind: str
    model: OpGraph | str
    precision: str
    options: dict[str, Any]

    def on(self, hardware: Device, half: str) -> TrainingJob:
        """The training on one GPU; `half`: half precision that all compared GPUs have."""
        if isinstance(self.model, str):
            return TrainingJob.from_config(self.model, device=hardware, precision=half, **self.options)
        # What is asked for in single precision is computed in TF32 where there is such a unit.
        single = "tf32" if "tf32" in hardware.precisions else "fp32"
        precision = single if self.precision == "fp32" else half
        return TrainingJob(self.model, device=hardware, precision=precision, **self.options)


def kinds() -> list[str]:
    """Names of the kinds of networks of the reference mix.

    >>> kinds()
    ['vision_small', 'vision_large', 'language_small', 'language_large', 'recommendation', 'sequence']
    """
    return list(dict.fromkeys(one.kind for one in _trainings()))


def mix_ratios(
    before: str | Device,
    after: str | Device,
    *,
    weights: Mapping[str, float] | None = None,
    host: float | str | None = None,
    model: CostModel | None = None,
) -> pd.DataFrame:
    """Run time of a reference mix of networks on one type of GPU over that on another.

    Each network is predicted on one GPU of both types, with the same batch, and with the same host: what the host
    bounds is not faster on a faster GPU.

    Parameters
    ----------
    before, after : str or Device
        The types of GPU; see `gpudemand.datasets.devices.device`.
    weights : mapping of str to float, optional
        Share of the GPU-hours on `before` that each of `kinds` has; those left out have none. By default all weigh
        alike, and the interval is that of a mix of which nothing is known.
    host : float or str, optional
        As of `CostModel.load`: seconds a launch of the machine that both are in, or a GPU whose measured hosts it is
        like. By default that of `CostModel.on_one_host`.
    model : CostModel, optional
        By default the bundled one.

    Returns
    -------
    DataFrame
        A row a kind, and ``all``: ``ratio``, below 1 where `after` is faster, ``ratio-lo-90``, ``ratio-hi-90``, and
        ``fits``, the share whose memory fits one GPU of `after`.

    Raises
    ------
    InputError
        For an unknown device, a CPU, an unknown kind, or weights that are negative or all zero.

    Examples
    --------
    >>> table = mix_ratios("V100", "H100")
    >>> table.columns.tolist()
    ['ratio', 'ratio-lo-90', 'ratio-hi-90', 'fits']
    >>> bool(table.loc["all", "ratio"] < 0.6)
    True
    """
    types = [_gpu(before), _gpu(after)]
    shares = _shares(weights)
    predictor = _bundled(host) if model is None else model.on_one_host(host)
    networks = _networks(types[0], types[1], predictor)
    by_kind = networks.groupby("kind", sort=False)
    found = pd.DataFrame({"ratio": by_kind["ratio"].mean(), "fits": by_kind["fits"].mean()})
    every = found.mul(shares, axis=0).sum().rename("all")
    found = pd.concat([found, every.to_frame().T])
    # Networks that as many of equal weight would be worth.
    counts = np.r_[by_kind.size(), 1.0 / (shares**2 / by_kind.size()).sum()]
    deviations = _deviations(types[0], types[1], counts, predictor.fitted_on_.get("gpu", {}))
    if weights is None:
        # Of a mean with weights that are uniform on the simplex.
        deviations[-1] = np.hypot(
            deviations[-1], found["ratio"][:-1].std(ddof=0) / np.sqrt(len(shares) + 1.0) / every["ratio"]
        )
    return _with_interval(found, deviations)


def _deviations(before: Device, after: Device, counts: FloatArray, measured: Mapping[str, Any]) -> FloatArray:
    """Deviations of the log ratio of means of so many networks; errors of one die are shared by its variants."""
    if before.name == after.name:
        return np.zeros(len(counts))
    own = [_of_die(one, measured) for one in (before, after)] if before.die != after.die or not before.die else []
    return np.asarray(np.hypot(np.sqrt(_OF_PAIR**2 + np.sum(np.square(own))), _OF_NETWORK / np.sqrt(counts)))


def _of_die(hardware: Device, measured: Mapping[str, Any]) -> float:
    if hardware.vendor not in (_MEASURED_MAKER, ""):
        return _OF_OTHER_MAKER
    return 0.0 if hardware.die in _dies(tuple(measured.get("devices", ()))) else _OF_NEW_DIE


@functools.lru_cache(maxsize=4)
def _dies(names: tuple[str, ...]) -> frozenset[str]:
    """Dies of the devices in the training data; a device of a user has none."""
    table = devices()["die"]
    return frozenset(table[[name for name in names if name in table.index]])


def _with_interval(found: pd.DataFrame, deviation: FloatArray) -> pd.DataFrame:
    """Ratios with their intervals, from deviations of their logs."""
    reach = np.exp(norm.ppf(0.5 + _LEVEL / 2) * deviation)
    ends = {"ratio-lo-90": found["ratio"] / reach, "ratio-hi-90": found["ratio"] * reach}
    return found.assign(**ends)[["ratio", *ends, "fits"]]


def _gpu(name: str | Device) -> Device:
    try:
        found = device(name)
    except InputError as error:
        raise InputError(f"the speed of {name!r} is not known: {error}") from error
    if found.kind != "gpu":
        raise InputError(f"{found.name} is a CPU; the mix is compared between GPUs.")
    return found


def _shares(weights: Mapping[str, float] | None) -> pd.Series:
    """Weights of all kinds, with sum 1."""
    stated = dict.fromkeys(kinds(), 1.0) if weights is None else dict(weights)
    for kind, weight in stated.items():
        check_choice("a kind of weights", kind, kinds())
        check_number(f"weights[{kind!r}]", weight, 0)
    shares = pd.Series(stated, dtype=float).reindex(kinds(), fill_value=0.0)
    if not shares.sum() > 0:
        raise InputError("weights are all zero; state the share of GPU-hours of each kind.")
    return shares / shares.sum()


def _networks(before: Device, after: Device, predictor: CostModel) -> pd.DataFrame:
    """Ratio and probability to fit `after` of each network of the mix."""
    half = "bf16" if all("bf16" in one.precisions for one in (before, after)) else "fp16"
    seconds = [_seconds(one, half, predictor) for one in (before, after)]
    fits = [predictor.fits(one.on(after, half)) for one in _trainings()]
    return pd.DataFrame({"kind": [one.kind for one in _trainings()], "ratio": seconds[1] / seconds[0], "fits": fits})


@functools.lru_cache(maxsize=16)
def _seconds(hardware: Device, half: str, predictor: CostModel) -> FloatArray:
    """Step time of each network of the mix."""
    with warnings.catch_warnings():
        # Intervals are those of ratios, which do not take those of times.
        warnings.simplefilter("ignore", FarFromTrainingWarning)
        return predictor.predict([one.on(hardware, half) for one in _trainings()])["step_time_s"].to_numpy()


@functools.lru_cache(maxsize=4)
def _bundled(host: float | str | None) -> CostModel:
    return CostModel.load().on_one_host(host)


@functools.cache
def _trainings() -> tuple[Training, ...]:
    stored = [_stored(row) for row in pd.read_parquet(bundled_path(PATH)).to_dict("records")]
    place = 1 + max(number for number, one in enumerate(stored) if one.kind == "language_small")
    decoders = [
        Training(
            "language_large",
            name,
            "bf16",
            {"seq_len": tokens, "batch_size": batch, "micro_batch": batch, "accumulate": 1, "optimizer": "adamw"}
            | {"checkpointing": again, "adapter": adapter},
        )
        for name, tokens, batch, again, adapter in _DECODERS
    ]
    return (*stored[:place], *decoders, *stored[place:])


def _stored(row: Mapping[str, Any]) -> Training:
    fields = {name: row[name] for name in ("nodes", "kernels", "input_shapes", *ATTRIBUTES)}
    graph = OpGraph.from_dict({**fields, "edges": np.reshape(row["edges"], (-1, 2)).tolist(), "name": row["network"]})
    options = {"batch_size": row["batch_size"], "optimizer": row["optimizer"]}
    return Training(row["kind"], graph, row["precision"], options)
