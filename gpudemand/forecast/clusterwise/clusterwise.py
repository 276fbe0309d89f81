"""`ClusterwiseForecaster`: users who are forecast alike, found from their own past."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import week_length
from gpudemand.forecast.clusterwise.evidence import Evidence
from gpudemand.forecast.clusterwise.exchange import costs, exchange, gate
from gpudemand.forecast.clusterwise.initial_partition import Start, default_starts
from gpudemand.forecast.clusterwise.loss_comparison import best_of, bounded_losses, mean_square, naive_unit
from gpudemand.forecast.clusterwise.weights import own_trust
from gpudemand.forecast.combination.base_forecasts import level_factor, mixed, summaries
from gpudemand.forecast.factorization.temporal_factorization import TemporalFactorization

_PENALTY = 10.0
_RELUCTANCE = (np.inf, 4.0)
#: Earlier origins that the regressions learn from.
_ORIGINS = 4
#: Blocks of time on which choices are tried.
_BLOCKS = 3
#: How far a user of whom nothing is known trusts the factorization alone, one regression for all, and the clusters.
_OPINIONS = {"factorization": 0.0, "one for all": 0.5, "clusters": 0.5}


class Choice(NamedTuple):
    """What to forecast with: one regression for all, or clusters from a start, and how easily users leave it."""

    kind: str
    start: int = -1
    reluctance: float = np.inf


_ONE = Choice("global")


class ClusterwiseForecaster(Forecaster):
    """Clusterwise regression on a temporal factorization.

    One factorization forecasts every user. How far it is to be trusted beside the user's newest value, season and
    means is a regression, and users who need different ones fall into clusters: each user moves to the cluster whose
    regression explains that user's own past best, unless there is too little past to leave the segment that a
    segmenter has put her in. Which start, how many clusters, or none at all, is decided on held-out time before the end
    of training, and so is how far each user is forecast by the clusters, by one regression for all, or by the
    factorization alone. Where their sum has been far off lately, the level of all is moved.

    Parameters
    ----------
    segmenter : clusterer, Series or None
        Where to start: anything with ``fit`` and ``predict`` on a wide frame (a row a user), such as
        `gpudemand.TopologicalSegmenter`, or labels by ``unique_id``. By default shape, spectrum and recency-frequency
        groups are tried.
    factorization : TemporalFactorization, optional
        Its parameters are used; by default those it has by itself.
    n_clusters : tuple of int, default=(2, 4, 8)
        Numbers of clusters tried by the default starts.
    horizon : int, optional
        Bins ahead for which clusters are found; by default one season.
    random_state : int, default=0

    Attributes
    ----------
    labels_ : Series
        Most probable cluster by ``unique_id``; all 0 where one global model is best.
    probabilities_ : DataFrame
        Probability of each cluster by ``unique_id``; forecasts are mixed with them.
    n_clusters_ : int
    selection_ : DataFrame
        Held-out loss of everything tried, as a share of the global model's.
    trust_ : DataFrame
        How far each user (``unique_id``) is forecast by the ``factorization`` alone, by ``one for all`` and by the
        ``clusters``.
    factorization_ : TemporalFactorization

    Notes
    -----
    What is tried on held-out time is compared by squared errors, every user alike and none without bound. Clusters have
    to be clearly better than one regression for all, by the spread of the difference between users, and not worse in
    the pooled error. A history of less than two horizons leaves nothing to learn from, and the factorization speaks
    alone. Scaling one user's series scales her forecast, but for the level that is common to all.

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979); R. Rivera-Castro et al.,
    *Topology-based clusterwise regression for user segmentation and demand forecasting*, DSAA 2019, arXiv:2009.03661
    (which assigns users by their error on the test period; here the test period is not looked at).

    Examples
    --------
    Half of the users repeat every week, the other half keep the newest level:

    >>> rng, days = np.random.default_rng(0), np.arange(140)
    >>> weekly = 5 + 4 * np.sin(2 * np.pi * (days + rng.integers(0, 7, (30, 1))) / 7)
    >>> walks = 50 + np.cumsum(rng.normal(0, 1, (30, 140)), axis=1)
    >>> y = np.vstack([weekly + rng.normal(0, 0.5, weekly.shape), walks])
    >>> ds = pd.date_range("2026-01-05", periods=140, name="ds")
    >>> usage = pd.DataFrame(y, columns=ds).rename_axis("unique_id").stack(future_stack=True).rename("y").reset_index()
    >>> model = ClusterwiseForecaster().fit(usage)
    >>> model.n_clusters_ > 1, len(set(model.labels_[:30]) & set(model.labels_[30:]))
    (True, 0)
    """

    _allow_missing = True
    _max_origins = 4

    def __init__(
        self,
        segmenter: Any = None,
        *,
        factorization: TemporalFactorization | None = None,
        n_clusters: tuple[int, ...] = (2, 4, 8),
        horizon: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.segmenter = segmenter
        self.factorization = factorization
        self.n_clusters = n_clusters
        self.horizon = horizon
        self.random_state = random_state

    def fit(self, usage: pd.DataFrame, freq: object = None) -> ClusterwiseForecaster:
        """Factorize, and find the clusters.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``; rows may be missing, and so may values.
        freq : str or offset, optional
            Frequency of the stamps; inferred when not given.

        Returns
        -------
        ClusterwiseForecaster
            This object.

        Raises
        ------
        InputError
            For an illegal parameter, or labels that do not name every user.
        """
        super().fit(usage, freq)
        own = self.factorization or TemporalFactorization(random_state=self.random_state)
        self.factorization_ = clone(own).fit(usage, freq=self.panel_.freq)
        self._fitted = {self.panel_.values.shape[1]: self.factorization_.fitted_}
        self._started: dict[tuple[int, int], Start] = {}
        self._h = self._fit_horizon(self.panel_.values.shape[1])
        plain = default_starts(self.n_clusters, len(self.panel_.ids), self.season_length_, self.random_state)
        self._starts = plain if self.segmenter is None else [self.segmenter]
        self.selection_, self.choice_ = self._select(self.panel_.values)
        trust = self._own_trust(self.panel_.values)
        self.trust_ = pd.DataFrame(trust, index=self.panel_.ids, columns=list(_OPINIONS))
        self._describe(self.panel_.values)
        return self

    def predict_new(self, usage: pd.DataFrame, h: int) -> pd.DataFrame:
        """Forecast users who were not in training: their segment says how, their history says how much.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new users, on the clock of the training series.
        h : int
            Bins after the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds`` and ``ClusterwiseForecaster``.
        """
        check_is_fitted(self, "choice_")
        path = self.factorization_.predict_new(usage, h)
        wide = usage.pivot(index="unique_id", columns="ds", values="y").reindex(columns=self.panel_.times)
        y = wide.to_numpy(dtype=float)
        point = path[type(self.factorization_).__name__].to_numpy().reshape(len(y), h)
        if self._origins(y.shape[1], h).size:
            now, seen = self._with_summaries(point, y), self._evidence(self.panel_.values, h)
            learned = [(choice, *self._learn(self.panel_.values, seen, choice)) for choice in (_ONE, self.choice_)]
            paths = [mixed(now, weights, self._odds_of_new(wide, odds, choice)) for choice, weights, odds in learned]
            point = np.stack([point, *paths], axis=-1) @ self.trust_.to_numpy().mean(axis=0)
        return path[["unique_id", "ds"]].assign(**{type(self).__name__: np.maximum(point, 0.0).ravel()})

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        if not self._origins(y.shape[1], h).size:
            return self._factorized(y, h)
        return np.asarray(np.einsum("nhp,np->nh", self._opinions(y, h), self.trust_.to_numpy()))

    def _opinions(self, y: FloatArray, h: int) -> FloatArray:
        """Forecasts by the factorization alone, by one regression for all, and by the clusters, (n_series, h, 3)."""
        now, seen = self._forecasts(y, h), self._evidence(y, h)
        paths = {choice: mixed(now, *self._learn(y, seen, choice)) for choice in {_ONE, self.choice_}}
        return np.stack([now[..., 0], paths[_ONE], paths[self.choice_]], axis=-1)

    def _evidence(self, y: FloatArray, h: int) -> Evidence:
        origins = self._origins(y.shape[1], h)
        past = np.stack([self._forecasts(y[:, :origin], h) for origin in origins], axis=1)
        return Evidence.of(y, past, origins, self.season_length_, _PENALTY)

    def _learn(self, y: FloatArray, seen: Evidence, choice: Choice) -> tuple[FloatArray, FloatArray]:
        """Weights of each cluster from earlier origins of a history, and its probability for each user."""
        past, truth, moments, shared = seen
        segments, now = self._segments(y, truth.shape[2], choice)
        n, reluctance = int(max(segments.max(), now.max())) + 1, choice.reluctance
        found = exchange(moments, segments, n, reluctance=reluctance, penalty=_PENALTY, towards=shared)
        odds = gate(costs(moments, found.weights, segments, reluctance), now)
        return found.weights * level_factor(truth, mixed(past, found.weights, odds)), odds

    def _segments(self, y: FloatArray, h: int, choice: Choice) -> tuple[IntArray, IntArray]:
        """Segment of each user at each earlier origin, told by what was known there, and now."""
        origins = self._origins(y.shape[1], h)
        if choice.kind == "global":
            return np.zeros((len(y), origins.size), dtype=np.int64), np.zeros(len(y), dtype=np.int64)
        start = self._start(y, choice.start)
        return np.column_stack([start.at(self._wide(y[:, :origin])) for origin in origins]), start.labels

    def _wide(self, y: FloatArray) -> pd.DataFrame:
        panel = self.panel_
        return pd.DataFrame(y, panel.ids, pd.date_range(panel.times[0], periods=y.shape[1], freq=panel.freq))

    def _origins(self, n_times: int, h: int) -> IntArray:
        origins = n_times - h - max(h // 2, 1) * np.arange(_ORIGINS)
        return origins[origins >= max(n_times // 2, 2)]

    def _forecasts(self, y: FloatArray, h: int) -> FloatArray:
        return self._with_summaries(self._factorized(y, h), y)

    def _with_summaries(self, point: FloatArray, y: FloatArray) -> FloatArray:
        season = self.season_length_
        others = summaries(y, point.shape[1], season, max(season, week_length(self.panel_.freq)))
        return np.concatenate([point[..., None], others], axis=-1)

    def _factorized(self, y: FloatArray, h: int) -> FloatArray:
        if y.shape[1] not in self._fitted:
            self._fitted[y.shape[1]] = self.factorization_.factorize(y)
        return self._fitted[y.shape[1]].forecast(h)

    def _start(self, y: FloatArray, place: int) -> Start:
        key = (y.shape[1], place)
        if key not in self._started:
            self._started[key] = Start.of(self._starts[place], self._wide(y))
        return self._started[key]

    def _own_trust(self, y: FloatArray) -> FloatArray:
        """How far each user is forecast by each of `_opinions`, from what they made of the newest blocks of time."""
        prior, ends = np.array(list(_OPINIONS.values())), self._blocks(y.shape[1])
        if not ends:
            return np.tile(prior, (len(y), 1))
        errors = np.concatenate([self._missed(y[:, :end]) for end in ends], axis=1)
        # What is believed without evidence is worth one block of it.
        return own_trust(errors, prior, 1 / len(ends))

    def _missed(self, y: FloatArray) -> FloatArray:
        """Errors of each of `_opinions` on the newest bins, shape (n_series, h, 3)."""
        early, truth = y[:, : -self._h], y[:, -self._h :]
        return truth[..., None] - np.maximum(self._opinions(early, self._h), self._floor(early)[..., None])

    def _blocks(self, n_times: int) -> list[int]:
        """Ends of the newest blocks of time before which there is something to learn from."""
        ends = [n_times - self._h * back for back in range(_BLOCKS)]
        return [end for end in ends if self._origins(end - self._h, self._h).size]

    def _select(self, y: FloatArray) -> tuple[pd.DataFrame, Choice]:
        """Try everything on the newest blocks of time, each time having learned from what was before."""
        columns, ends = ["start", "n_clusters", "reluctance", "loss"], self._blocks(y.shape[1])
        choices = [_ONE, *(Choice("clusters", n, r) for n in range(len(self._starts)) for r in _RELUCTANCE)]
        if not ends:
            return pd.DataFrame(columns=columns), _ONE
        losses, wrong = np.mean([self._losses(y[:, :end], choices) for end in ends], axis=0)
        share = losses.mean(axis=1) / losses[0].mean()
        rows = [(*self._named(c, y), c.reluctance, loss) for c, loss in zip(choices, share, strict=True)]
        return pd.DataFrame(rows, columns=columns), choices[best_of(losses, wrong.sum(axis=1))]

    def _losses(self, y: FloatArray, choices: list[Choice]) -> FloatArray:
        """Loss of each choice on the newest bins for each user, bounded and plain, shape (2, n_choices, n_series)."""
        early, truth = y[:, : -self._h], y[:, -self._h :]
        now, seen, floor = self._forecasts(early, self._h), self._evidence(early, self._h), self._floor(early)
        paths = [np.maximum(mixed(now, *self._learn(early, seen, choice)), floor) for choice in choices]
        wrong = np.stack([mean_square(truth - path) for path in paths])
        return np.stack([bounded_losses(wrong, naive_unit(early, self.season_length_)), wrong])

    def _named(self, choice: Choice, y: FloatArray) -> tuple[str, int]:
        if choice.start < 0:
            return choice.kind, 1
        return str(self._starts[choice.start]), int(self._start(y, choice.start).labels.max()) + 1

    def _describe(self, y: FloatArray) -> None:
        odds = np.ones((len(y), 1))
        if self.choice_.kind == "clusters":
            odds = self._learn(y, self._evidence(y, self._h), self.choice_)[1]
        self.probabilities_ = pd.DataFrame(odds, index=self.panel_.ids)
        self.labels_ = pd.Series(odds.argmax(axis=1), index=self.panel_.ids, name="cluster")
        self.n_clusters_ = odds.shape[1]

    def _odds_of_new(self, wide: pd.DataFrame, odds: FloatArray, choice: Choice) -> FloatArray:
        """What the clusters of training users are whom the segmenter puts in the same segment."""
        if choice.kind == "global":
            return np.ones((len(wide), 1))
        start = self._start(self.panel_.values, choice.start)
        shares = np.vstack([odds[start.labels == label].mean(axis=0) for label in range(start.labels.max() + 1)])
        labels = start.of_new(wide)
        return np.where(labels[:, None] >= 0, shares[labels], odds.mean(axis=0))

    def _fit_horizon(self, n_times: int) -> int:
        wanted = self.season_length_ if self.horizon is None else check_number("horizon", self.horizon, 1, integer=True)
        return int(max(min(wanted, n_times // 4), 1))
