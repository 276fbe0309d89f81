"""Ratios of speed between two types of GPU over a mix of networks, predicted without any row of the second type.

    python -m benchmarks.cost --track ratios [--train DIR] [--cache DIR] [--traced]

Two types are compared over the networks that one project has of both, in the same precision as asked for, framework
and mode. ``same job``: batch, version, layout and execution are alike too; ``same network``: each at its own, as its
memory and its year suggest, alike where both were measured so. A pair has at least ten networks (`LEAST`), or ten of
networks times precisions. The mix's ratio is the mean over networks of the ratio of time a sample: as if each network
had as many GPU-hours on the first type; beside it the geometric mean. Predictions are those of
`gpudemand.cost.reference_mix`, one host for both types, from models that are fitted without the second type's die,
without all types of its generation and newer ones, or, types known, without the families of the networks. Of the method
only the deviations of the intervals are fitted here: each half of the dies, drawn once, is scored with those of the
other.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.model_selection import GroupKFold

from benchmarks.cost.jobs import jobs_of, with_terms
from benchmarks.cost.load import tables
from benchmarks.cost.table import collapsed_hosts, time_table
from benchmarks.cost.traced import TraceCache
from gpudemand._array import BoolArray, FloatArray
from gpudemand.cost.step_time_model import StepTimeModel
from gpudemand.datasets.devices import device, devices

log = logging.getLogger(__name__)
#: Fewest networks in common; of timm, which has hundreds of two types, as many as are drawn.
LEAST, _TIMM = 10, 120
#: Of the draws of the networks and of the dies that are scored.
_SEED = 20261128
_NETWORK = ["source", "network", "mode", "asked", "framework"]
_JOB = [*_NETWORK, "batch_size", "framework_version", "layout", "execution"]
#: First generation of which enough older types were measured to leave it out with all newer ones.
_FIRST = 2017
_PAIR, _FOLDS = ["before", "after"], 5
#: The only die of another maker, in one table: shown by itself.
_FOREIGN = "Vega 20"
_NEAR = norm.ppf(0.95)


def measured_rows(data: Path, cache: TraceCache, *, trace: bool) -> pd.DataFrame:
    """Jobs on one GPU with their work; single precision is one, whether it is computed in TF32 or not."""
    jobs = pd.concat([jobs_of(rows) for rows in tables(data).values()], ignore_index=True)
    jobs = collapsed_hosts(jobs[(jobs["n_gpus"] == 1) & (jobs["precision"] != "fp64")])
    timm = jobs.loc[jobs["source"] == "timm"].groupby("graph")["device_name"].nunique()
    if not trace:
        timm = timm[timm.index.isin(cache.keys())]
    drawn = timm[timm > 1].sample(_TIMM, random_state=_SEED).index
    jobs = jobs[(jobs["source"] != "timm") | jobs["graph"].isin(drawn)].reset_index(drop=True)
    if trace:
        cache.trace(jobs["graph"].unique())
    rows = with_terms(sound(jobs), cache)
    rows["first_year"] = first_years(rows["device_name"])
    return rows.assign(asked=rows["precision"].replace("tf32", "fp32"), row=np.arange(len(rows)))


def sound(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without those that tell nothing of the GPU, by the measurements alone.

    With TensorFlow on a Quadro RTX 6000 AlexNet takes as long an image as ResNet-152, so that something else bounded
    both; on an A100 VGG-16 trains 20 times slower than ResNet-50, elsewhere 2 to 3 times.
    """
    tensorflow = rows["source"] == "lambda_tensorflow"
    bounded = tensorflow & (rows["device_name"] == "Quadro RTX 6000")
    slow = (rows["network"] == "vgg16") & (rows["mode"] == "train") & (rows["device_die"] == "GA100")
    return rows[~(bounded | (tensorflow & slow))].reset_index(drop=True)


def first_years(names: pd.Series) -> FloatArray:
    """Year of the first device of each one's architecture."""
    years = devices().groupby("architecture")["year"].min()
    return np.array([years[device(name).architecture] for name in names], dtype=float)


class Predictor:
    """Seconds of a step of all rows on the mean host, of models fitted to a part of the training rows and kept."""

    def __init__(self, train: pd.DataFrame, rows: pd.DataFrame, folder: Path) -> None:
        self.train, self.rows, self.folder = train, rows, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.digest = f"{pd.util.hash_pandas_object(pd.concat([train, rows]).astype(str)).sum():016x}"

    def seconds(self, name: str, out: BoolArray) -> FloatArray:
        """Without the training rows that are `out`."""
        path = self.folder / f"{self.digest}-{name}.npy"
        if not path.is_file():
            train = self.train[~out].assign(host=self.train["source"][~out])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = StepTimeModel().fit(train, train["step_time_s"], groups=train["family"].astype(str))
                model.hosts_ = model.hosts_.told(float(np.exp(model.hosts_.mean)))
                np.save(path, model.predict(self.rows))
        return np.asarray(np.load(path))

    def by_die(self) -> Callable[[str], FloatArray]:
        """Without the die."""
        dies = self.train["device_die"].astype(object).to_numpy()
        return lambda die: self.seconds(f"die-{die}", dies == die)

    def by_generation(self) -> Callable[[str], FloatArray]:
        """Without the generation of a die and all newer ones."""
        years = dict(zip(self.rows["device_die"], self.rows["first_year"], strict=True))
        train = first_years(self.train["device_name"])
        return lambda die: self.seconds(f"from-{years[die]:.0f}", train >= years[die])

    def by_family(self) -> Callable[[str], FloatArray]:
        """Without the families of the networks."""
        families, found = self.rows["family"].astype(str), np.zeros(len(self.rows))
        for fold, (_, test) in enumerate(GroupKFold(_FOLDS).split(self.rows, groups=families)):
            out = self.train["family"].astype(str).isin(families.iloc[test].unique()).to_numpy()
            found[test] = self.seconds(f"families-{fold}", out)[test]
        return lambda _: found


def common(rows: pd.DataFrame, *, same_job: bool) -> pd.DataFrame:
    """A row each pair of compared rows of two types, with logs of the ratios of time and of the data sheets."""
    parts = []
    for before, after in itertools.permutations(rows["device_name"].unique(), 2):
        one, other = (rows[rows["device_name"] == name] for name in (before, after))
        pairs = one.merge(other, on=_JOB, suffixes=("_a", "_b"))
        if not same_job:
            loose = one.merge(other, on=_NETWORK, suffixes=("_a", "_b"))
            known = pd.MultiIndex.from_frame(pairs[_NETWORK])
            pairs = pd.concat([pairs, loose[~pd.MultiIndex.from_frame(loose[_NETWORK]).isin(known)]])
        if pairs[["network", "asked"]].drop_duplicates().shape[0] >= LEAST:
            parts.append(pairs.assign(before=before, after=after))
    found = pd.concat(parts, ignore_index=True)
    first, second = (rows.iloc[found[f"row_{end}"]].reset_index(drop=True) for end in "ab")
    samples = np.log(first["batch_size"] / second["batch_size"])
    about = {
        "first": first["row"],
        "second": second["row"],
        "samples": samples,
        "measured": np.log(second["step_time_s"] / first["step_time_s"]) + samples,
        "bandwidths": np.log(first["device_bandwidth_gb_s"] / second["device_bandwidth_gb_s"]),
        "peaks": np.log(first["device_peak_tflops"] / second["device_peak_tflops"]),
        "die": second["device_die"],
        "first_die": first["device_die"],
        "year": second["first_year"],
        "newer": second["first_year"] > first["first_year"],
        "same generation": second["first_year"] == first["first_year"],
    }
    return found[[*_PAIR, *_NETWORK]].assign(**about)


def with_rules(found: pd.DataFrame) -> pd.DataFrame:
    """Add the geometric mean of both ratios of data sheets, and the better of the two, chosen per project elsewhere."""
    found = found.assign(**{"geometric mean": (found["bandwidths"] + found["peaks"]) / 2.0, "better of both": np.nan})
    errors = {name: (found[name] - found["measured"]).abs() for name in ("bandwidths", "peaks")}
    for (source, die), rows in found.groupby(["source", "die"]):
        elsewhere = (found["die"] != die) & (found["first_die"] != die)
        same = elsewhere & (found["source"] == source)
        chosen = same if same.any() else elsewhere
        best = min(errors, key=lambda name: errors[name][chosen].median())
        found.loc[rows.index, "better of both"] = rows[best]
    return found


def with_predictions(found: pd.DataFrame, seconds: Callable[[str], FloatArray]) -> pd.DataFrame:
    """Add log ratios that are predicted."""
    found = found.assign(predicted=0.0)
    for die, rows in found.groupby("die"):
        times = np.log(seconds(str(die)))
        found.loc[rows.index, "predicted"] = times[rows["second"]] - times[rows["first"]] + rows["samples"]
    return found


METHODS = ("predicted", "bandwidths", "peaks", "better of both", "geometric mean")


def mixes(found: pd.DataFrame) -> pd.DataFrame:
    """A row a pair: log ratios of the mix, of their geometric means, and what is known of the pair."""
    logs = ["measured", *METHODS]
    # A network that was measured in several batches, precisions and modes counts once.
    network = found[logs].groupby([found[name] for name in (*_PAIR, "network")])
    by_network = np.log(np.exp(found[logs]).groupby([found[name] for name in (*_PAIR, "network")]).mean())
    pairs = by_network.groupby(_PAIR)
    mean = np.log(np.exp(by_network).groupby(_PAIR).mean())
    geometric = network.mean().groupby(_PAIR).mean().add_suffix(", geometric")
    error = by_network["predicted"] - by_network["measured"]
    about = found.groupby(_PAIR)[["die", "year", "newer", "same generation"]].first()
    sizes = {"networks": pairs.size(), "within": error.groupby(_PAIR).var(ddof=1)}
    return pd.concat([mean, geometric, about], axis=1).assign(**sizes)


def deviations(pairs: pd.DataFrame) -> tuple[float, float]:
    """Deviations of the log ratio of a pair as a whole and of a network in it.

    All pairs with one second die share its error, so that dies count, not pairs: the deviation is that of a die never
    seen, for which a normal interval is as wide as Student's of so many dies.
    """
    of_network = float(np.sqrt(pairs["within"].median()))
    square = (pairs["predicted"] - pairs["measured"]) ** 2 - of_network**2 / pairs["networks"]
    by_die = square.groupby(pairs["die"]).mean().clip(lower=0.0)
    few = student.ppf(0.95, len(by_die)) * np.sqrt(1.0 + 1.0 / len(by_die)) / _NEAR
    return float(np.sqrt(by_die.mean()) * few), of_network


def inside(pairs: pd.DataFrame, fitted: tuple[float, float]) -> pd.Series:
    """Whether the mix's ratio is in its 90 % interval."""
    reach = _NEAR * np.hypot(fitted[0], fitted[1] / np.sqrt(pairs["networks"]))
    return (pairs["predicted"] - pairs["measured"]).abs() <= reach


def errors(pairs: pd.DataFrame) -> pd.DataFrame:
    """Median and 90th percentile of the error of the mix's ratio, and of its geometric mean, by method."""
    rows = {}
    for name in METHODS:
        gap, geometric = (np.expm1(pairs[name + end] - pairs["measured" + end]).abs() for end in ("", ", geometric"))
        rows[name] = {"median": gap.median(), "p90": gap.quantile(0.9), "median, geometric": geometric.median()}
    return pd.DataFrame(rows).T


def _report(title: str, pairs: pd.DataFrame, fitted: tuple[float, float]) -> None:
    """Log errors of all methods, and those of the first and its coverage by generation of the second type."""
    covered, error = inside(pairs, fitted), np.expm1(pairs["predicted"] - pairs["measured"]).abs()
    about = f"{len(pairs)} pairs of {pairs['die'].nunique()} second dies, {100 * covered.mean():.0f} % inside"
    by = pairs.assign(inside=covered, error=error).groupby(["year", "same generation"])
    rows = by.agg(pairs=("error", "size"), median=("error", "median"), inside=("inside", "mean"))
    log.info("\n%s: %s\n%s\n%s", title, about, _text(errors(pairs)), _text(rows))


def _text(table: pd.DataFrame) -> str:
    return table.round(3).to_string()


def scored_dies(rows: pd.DataFrame) -> list[str]:
    """The half of the dies that was drawn."""
    names = np.sort(rows["device_die"].astype(str).unique())
    return np.random.default_rng(_SEED).permutation(names)[: len(names) // 2].tolist()


def run(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Log all tables; return what the other tracks do, a row a pair."""
    rows = measured_rows(data, cache, trace=trace)
    model = Predictor(time_table(data, cache, trace=trace), rows, cache.folder / "speed_ratios")
    generation = model.by_generation()
    held_out = {"die": model.by_die(), "generation and newer": generation, "families of networks": model.by_family()}
    scored, results = scored_dies(rows), []
    log.info("scored dies: %s", ", ".join(scored))
    for same_job in (True, False):
        found = with_rules(common(rows, same_job=same_job))
        for what, seconds in held_out.items():
            part = found[found["newer"] & (found["year"] > _FIRST)] if seconds == generation else found
            pairs = mixes(with_predictions(part, seconds))
            title = f"same {'job' if same_job else 'network'}, held out: {what}"
            _log_tables(title, pairs, scored)
            results.append(pairs.assign(held_out=what, same_job=same_job))
    return pd.concat(results).reset_index()


def _log_tables(title: str, pairs: pd.DataFrame, scored: list[str]) -> None:
    pairs, foreign = pairs[pairs["die"] != _FOREIGN], pairs[pairs["die"] == _FOREIGN]
    test = pairs["die"].isin(scored)
    halves, fitted = {"development": pairs[~test], "scored": pairs[test]}, deviations(pairs)
    log.info("\n=== %s: deviation of a pair %.3f, of a network %.3f", title, *fitted)
    _report("ten networks", pairs[pairs["networks"] >= LEAST], fitted)
    for name, other in (("development", "scored"), ("scored", "development")):
        _report(f"{name}, interval from the other half", halves[name], deviations(halves[other]))
    _report("all", pairs, fitted)
    if len(foreign):
        error = foreign["predicted"] - foreign["measured"]
        _report(f"{_FOREIGN}, whose errors are {np.sqrt((error**2).mean()):.2f}", foreign, fitted)
