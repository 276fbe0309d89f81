"""Discriminants of daily features: the bundled table, its derivation, and the projection."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
import gpudemand.segments as gs
from gpudemand.datasets.registry import bundled_path
from gpudemand.segments import features as feature_space
from gpudemand.segments.features import CLIP, TABLES, WITHIN, load_discriminants, project, variance_within

fitting = pytest.importorskip("scripts.fit_discriminants", reason="runs from a checkout")


@pytest.fixture(scope="module", params=TABLES)
def block(request):
    return request.param


@pytest.fixture(scope="module")
def table(block):
    return pd.read_csv(bundled_path(TABLES[block]), index_col="feature")


@pytest.fixture(scope="module", autouse=True)
def _simulated_once():
    """Simulate each cluster once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "simulated", cache(fitting.simulated))
        yield


@cache
def populations(seed):
    return list(fitting.populations([seed]))


@cache
def known_features(block, seed):
    return fitting.known_features(populations(seed), block)


def test_the_table_has_a_row_for_each_feature(block, table):
    features = fitting.FEATURES[block]
    assert tuple(table.index) == (*features, WITHIN)
    assert load_discriminants(block).weights.shape == (len(features), min(len(features), fitting.N_DISCRIMINANTS))


@pytest.mark.slow
def test_one_seed_gives_nearly_the_same_distances(block, table):
    again = fitting.fit_discriminants(known_features(block, 1000), block)
    assert again.index.equals(table.index)
    assert again.columns.equals(table.columns)
    np.testing.assert_allclose(again["scale"], table["scale"], rtol=0.25 if block == "multiscale_persistence" else 0.05)
    bundled, one_seed = (frame.iloc[:-1, 2:] @ frame.iloc[:-1, 2:].T for frame in (table, again))
    assert np.corrcoef(bundled.to_numpy().ravel(), one_seed.to_numpy().ravel())[0, 1] > 0.85


@pytest.mark.slow
def test_the_script_reproduces_the_table(block, table):
    again = fitting.fit_discriminants([known for seed in fitting.SEEDS for known in known_features(block, seed)], block)
    signs = np.sign((again * table).iloc[:-1].sum())  # the sign of an eigenvector is arbitrary
    np.testing.assert_allclose((again * signs).iloc[:-1], table.iloc[:-1], atol=0.011)
    np.testing.assert_allclose(again.loc[WITHIN], table.loc[WITHIN], atol=0.011)


def test_discriminants_of_two_classes_are_those_of_fisher():
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1], 2000)
    features = rng.normal(size=(4000, 3)) @ np.diag([1.0, 2.0, 0.5]) + classes[:, None] * [2.0, 0.0, 0.0]
    weights = fitting.discriminants(*fitting.scatter(features, classes))
    assert np.abs(weights[0, 0]) > 10 * np.abs(weights[1:, 0]).max()
    assert (features @ weights[:, 0])[classes == 0].var() == pytest.approx(2 / 3, rel=0.1)  # share 2 / (1 + 2) of one


def test_the_prior_is_the_variance_between_classes_that_were_left_out():
    rng = np.random.default_rng(0)
    classes = np.repeat(["a", "b", "c", "d"], 2000)
    ends = {"a": [0, 0, 0], "b": [0, 0, 0], "c": [6, 0, 0], "d": [0, 6, 0]}
    features = rng.normal(size=(8000, 3)) + np.array([ends[kind] for kind in classes])
    # Half the square distances by pair are 0, 18, 18, 18, 18 and 36: over three dimensions their median is 6.
    assert fitting.prior_variance([(1.0, features, classes)]) == pytest.approx(6.0, rel=0.1)


def test_a_prior_gives_weight_to_directions_in_which_known_classes_do_not_differ():
    within, between = np.eye(2), np.diag([3.0, 0.0])
    shares = [(fitting.discriminants(within, between, prior) ** 2).sum(axis=0) for prior in (0.0, 1.0)]
    np.testing.assert_allclose(shares[0], [0.75, 0.0], atol=0.02)
    np.testing.assert_allclose(shares[1], [0.8, 0.5], atol=0.02)


def test_the_variance_within_is_that_of_users_of_one_class():
    jobs, truth = gd.make_cluster(150, 180, archetypes=fitting.ALL, random_state=1000)
    wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D", partial=False))
    places = project(gs.UsageRhythm().fit_transform(wide))
    kinds = truth.set_index("user")["archetype"].loc[wide.index].to_numpy()
    within = np.mean([places[kinds == kind].var(axis=0).sum() for kind in set(kinds)])
    assert variance_within() == pytest.approx(within, rel=0.2)


@pytest.mark.slow
def test_the_variance_within_of_features_with_fixed_scales_is_that_of_the_script():
    bundled = {"hourly": feature_space._WITHIN_HOURLY}
    bundled |= {name: within for name, (_, within) in feature_space._FIXED_SCALES.items()}
    derived = fitting.variances_within([1000])
    for name, within in bundled.items():
        assert within == pytest.approx(derived[name], rel=0.2)


def test_features_are_clipped():
    bundled = load_discriminants()
    at, beyond = (project((bundled.location + times * bundled.scale)[None]) for times in (CLIP, 10 * CLIP))
    np.testing.assert_allclose(at, beyond)


def test_classes_are_farther_apart_than_users_of_one():
    rng = np.random.default_rng(0)
    office = (np.arange(112) % 7 < 5) * rng.lognormal(0, 0.3, (20, 112))
    sporadic = (rng.random((20, 112)) < 0.2) * rng.lognormal(0, 0.3, (20, 112))
    days = pd.date_range("2026-03-02", periods=112)
    places = project(gs.UsageRhythm().fit_transform(pd.DataFrame(np.vstack([office, sporadic]), columns=days)))
    between = ((places[:20].mean(axis=0) - places[20:].mean(axis=0)) ** 2).sum()
    within = (places[:20].var(axis=0) + places[20:].var(axis=0)).sum() / 2
    assert between > 3 * within


def archetypes(n_days):
    jobs, _ = gd.make_cluster(60, n_days, random_state=3)
    return gd.to_wide(gd.usage_series(jobs, by="user", freq="D", partial=False))


@pytest.mark.slow
@pytest.mark.parametrize("n_days", [10, 21])
@pytest.mark.parametrize("blocks", [None, ["multiscale_persistence"]])
def test_segments_of_short_logs_warn_of_extrapolated_distances(n_days, blocks):
    with pytest.warns(gs.ExtrapolationWarning, match=r"of \d+% of the users .*presence"):
        gs.TopologicalSegmenter(2, blocks=blocks, random_state=0).fit(archetypes(n_days))


@pytest.mark.slow
@pytest.mark.parametrize(("n_days", "blocks"), [(90, None), (10, ["presence", "persistence"])])
def test_no_warning_inside_the_fitted_histories_or_without_fitted_blocks(n_days, blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.TopologicalSegmenter(2, blocks=blocks, random_state=0).fit(archetypes(n_days))
