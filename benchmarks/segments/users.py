"""Real users: forecasts of the last third of a trace from segments of the first two thirds.

Forecasts are Tweedie regressions on segment labels (with and without the user's own past rate), cross-validated over
users in five folds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import KFold

import gpudemand as gd
from gpudemand.segments import TopologicalSegmenter, rfm_table, segment_stability

POWER = 1.5
N_ROUNDS, N_BOOTSTRAPS = 5, 1000
Array = NDArray[Any]


def read_philly(data: Path) -> pd.DataFrame:
    """Read Philly's 136 users, in the clock of the trace."""
    path = data / "traces" / "dirlab-gen-parallel" / "philly_data_training.csv.gz"
    return gd.read_jobs(path, format="dirlab", origin=pd.Timestamp(1502100181, unit="s", tz="UTC"))


def read_venus(data: Path) -> pd.DataFrame:
    """Read Venus' users with GPU jobs."""
    path = data / "traces" / "dirlab-gen-parallel" / "helios_data_training.csv.gz"
    jobs = gd.read_jobs(path, format="dirlab", origin="2020-05-27 23:58:26+00:00")
    return jobs[jobs["gpus"] > 0]


def read_gentd(data: Path) -> pd.DataFrame:
    """Read the users of Alibaba's image generation service (GenTD26)."""
    return gd.read_jobs(data / "traces" / "alibaba-genai-v2026" / "lora_request_trace.csv.gz", format="genai", tz="UTC")


READERS = {"Philly": read_philly, "Venus": read_venus, "GenTD26": read_gentd}
#: Collection of the Philly extract ramps up: only 19 users are active in the first two thirds of all its days.
STARTS = {"Philly": "2017-09-24"}


def hourly(name: str, jobs: pd.DataFrame) -> pd.DataFrame:
    """GPU-hours by user and hour, truncated at the last submission."""
    last = jobs["submit"].max()
    usage = gd.usage_series(jobs, by="user", freq="h", start=STARTS.get(name), until=last, partial=False)
    return gd.to_wide(usage)


def quintiles(history: pd.DataFrame) -> pd.DataFrame:
    """Quintile of each user in recency, frequency and monetary value; ties share the mean rank."""
    ranks = rfm_table(history).rank(pct=True, method="average")
    return np.ceil(5 * ranks).clip(1, 5).astype(int)


def one_hot(labels: pd.DataFrame) -> Array:
    """Indicator columns."""
    return np.asarray(pd.get_dummies(labels.astype(str)), dtype=float)


def forecast(design: Array, future: Array) -> Array:
    """Out-of-user forecasts, one row a round of five folds."""
    rounds = np.empty((N_ROUNDS, len(future)))
    for number in range(N_ROUNDS):
        for seen, unseen in KFold(5, shuffle=True, random_state=number).split(design):
            model = TweedieRegressor(power=POWER, link="log", alpha=0.03, max_iter=2000)
            model.fit(design[seen], future[seen])
            # The log link extrapolates without bound.
            rounds[number, unseen] = np.clip(model.predict(design[unseen]), 1e-3 * future.mean(), future[seen].max())
    return rounds


def deviances(future: Array, rounds: Array) -> Array:
    """Mean Tweedie deviance of each user over the rounds."""
    first = future ** (2 - POWER) / ((1 - POWER) * (2 - POWER))
    rest = rounds ** (2 - POWER) / (2 - POWER) - future * rounds ** (1 - POWER) / (1 - POWER)
    return np.asarray(2 * (first + rest).mean(axis=0))


def compare(history: pd.DataFrame, future: Array, labels: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Deviance of each set of labels, and the bootstrap interval of its difference from RFM quintiles."""
    scale = future.mean()
    rate = np.log(history.mean(axis=1).to_numpy() / scale + 0.01)
    rate = (rate - rate.mean()) / rate.std()
    losses: dict[tuple[str, str], Array] = {}
    for name, table in labels.items():
        hot = one_hot(table)
        losses["labels alone", name] = deviances(future / scale, forecast(hot, future / scale))
        losses["with the user's rate", name] = deviances(
            future / scale, forecast(np.column_stack([hot, rate]), future / scale)
        )
    losses["with the user's rate", "no labels"] = deviances(future / scale, forecast(rate[:, None], future / scale))
    rng = np.random.default_rng(0)
    draws = rng.integers(len(future), size=(N_BOOTSTRAPS, len(future)))
    rows = []
    for (what, name), loss in losses.items():
        difference = (loss - losses[what, "RFM quintiles"])[draws].mean(axis=1)
        low, high = np.quantile(difference, [0.025, 0.975])
        rows.append((what, name, loss.mean(), loss.mean() - losses[what, "RFM quintiles"].mean(), low, high))
    columns = ["forecast", "labels", "deviance", "minus RFM", "2.5 %", "97.5 %"]
    return pd.DataFrame(rows, columns=columns).set_index(["forecast", "labels"])


def virtual_clusters(data: Path, jobs: pd.DataFrame) -> pd.Series:
    """Virtual cluster of Philly's users, by jobs of the other extract with the same second, run time and GPUs."""
    other = gd.read_jobs(data / "traces" / "philly-jobs-pollux" / "philly.csv.gz", format="philly-pollux", tz="UTC")
    keys = ["submit", "seconds", "gpus"]
    left, right = (t.assign(seconds=(t["end"] - t["start"]).dt.total_seconds().round()) for t in (jobs, other))
    both = left[[*keys, "user"]].merge(right[[*keys, "group"]].drop_duplicates(keys, keep=False), on=keys)
    return both.groupby("user")["group"].agg(lambda groups: groups.mode().iloc[0])


def segmenters(number: int) -> dict[str, TopologicalSegmenter]:
    """Segmenters by default blocks, with RFM, and by presence; with a chosen and a given number of segments."""
    found = {
        "segments": None,
        "segments with RFM": ["rhythm", "weekly_persistence", "rfm"],
        "segments by presence": ["presence"],
    }
    given = {"8 segments": None, "8 segments, no topology": ["rhythm"], "8 segments by presence": ["presence"]}
    return {key: TopologicalSegmenter(blocks=blocks, random_state=0) for key, blocks in found.items()} | {
        key: TopologicalSegmenter(number, blocks=blocks, random_state=0) for key, blocks in given.items()
    }


def report(name: str, data: Path, n_resamples: int) -> None:
    """Print deviances and stability for one trace."""
    jobs = READERS[name](data)
    wide = hourly(name, jobs)
    cut = 2 * wide.shape[1] // 3
    history, later = wide.iloc[:, :cut], wide.iloc[:, cut:]
    known = history.sum(axis=1) > 0
    history, future = history[known], later[known].mean(axis=1).to_numpy()
    print(f"\n{name}: {len(wide)} users, {wide.shape[1]} hours; {len(history)} with use in the first {cut}")
    labels = {"RFM quintiles": quintiles(history)}
    fits = {key: fit.fit(history) for key, fit in segmenters(min(8, len(history) // 4)).items()}
    labels |= {key: pd.DataFrame({"segment": fit.labels_}, index=history.index) for key, fit in fits.items()}
    labels["8 segments + RFM quintiles"] = labels["8 segments"].join(labels["RFM quintiles"])
    rng = np.random.default_rng(1)
    labels["8 segments at random"] = labels["8 segments"].assign(segment=rng.permutation(fits["8 segments"].labels_))
    print(compare(history, future, labels).round(3).to_string())
    for key, fit in fits.items():
        found = segment_stability(fit, history, n_resamples=n_resamples)["ari"].mean()
        print(f"{key}: {fit.n_segments_} segments, bootstrap stability (ARI) {found:.2f}")
    if name == "Philly":
        clusters = virtual_clusters(data, jobs)
        whole = TopologicalSegmenter(random_state=0).fit(wide)
        segment = pd.Series(whole.labels_, index=wide.index).loc[clusters.index]
        ari = adjusted_rand_score(clusters, segment)
        print(f"agreement with virtual clusters: ARI {ari:.2f} ({len(clusters)} users, {whole.n_segments_} segments)")
