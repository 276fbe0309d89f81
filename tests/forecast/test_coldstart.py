"""Cold start in its benchmark: quantiles by age of the history, scaled to the level of the new user."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand.metrics import pinball

coldstart = pytest.importorskip("benchmarks.forecast.coldstart", reason="runs from a checkout")


@pytest.fixture(scope="module")
def beginners():
    """Half of the users are active once, the others stay; first days and levels differ."""
    rng, y = np.random.default_rng(0), np.zeros((300, 20))
    for user in range(300):
        first, level = rng.integers(0, 12), 10 ** rng.uniform(0, 3)
        stays = user % 2
        y[user, first : first + (20 if stays else 1)] = level
        y[user, first:] *= rng.uniform(0.8, 1.2, 20 - first)
    return y


def test_quantiles_beat_the_mean_of_all(beginners):
    known, aged = coldstart.aligned(beginners[:200]), coldstart.aligned(beginners[200:])
    mean = np.full((100, 3), beginners[:200].sum() / (beginners[:200] > 0).sum() / 2)
    for m in (1, 3):
        found = coldstart.analogues(known, aged[:, :m], 3, coldstart.SHARES)
        ours, theirs = (
            np.mean([pinball(aged[:, m : m + 3], paths[place], q) for place, q in enumerate(coldstart.SHARES)])
            for paths in (found, np.repeat(mean[None], 9, axis=0))
        )
        assert ours < 0.5 * theirs


def test_after_three_days_active_users_are_distinguished(beginners):
    known, past = coldstart.aligned(beginners), np.array([[50.0, 0, 0], [50.0, 52, 47]])
    found = coldstart.analogues(known, past, 1, [0.1, 0.9])
    assert found[1, 0].max() == 0
    assert found[0, 1].min() > 30


def test_forecasts_are_relative_to_the_level_of_the_new_user():
    y = np.outer(10.0 ** np.arange(30), [1.0, 2, 3, 4])
    small, large = coldstart.analogues(y, np.array([[3.0], [3e4]]), 2, [0.5])[0]
    np.testing.assert_allclose(large, small * 1e4)


def test_without_history_all_users_are_neighbours(beginners):
    found = coldstart.analogues(coldstart.aligned(beginners), np.zeros((2, 0)), 3, [0.5])
    np.testing.assert_array_equal(found[0, 0], found[0, 1])
    first = beginners[np.arange(300), (beginners > 0).argmax(axis=1)]
    assert found[0, 0, 0] == pytest.approx(np.median(first), rel=0.1)
