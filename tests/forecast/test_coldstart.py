"""AnalogueForecaster: quantiles by age of the history, and scaling to the level of the new user."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast.coldstart import AnalogueForecaster
from gpudemand.metrics import pinball

from .canaries import frame


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
    known, new = beginners[:200], beginners[200:]
    model = AnalogueForecaster().fit(frame(known, "D"))
    aged = np.stack([row[(row > 0).argmax() :][:6] for row in new])
    shares = np.arange(0.1, 1, 0.1)
    for m in (1, 3):
        found = model.quantiles(aged[:, :m], 3, shares)
        mean = np.full((len(new), 3), beginners[:200].sum() / (beginners[:200] > 0).sum() / 2)
        ours, theirs = (
            np.mean([pinball(aged[:, m : m + 3], paths[place], q) for place, q in enumerate(shares)])
            for paths in (found, np.repeat(mean[None], 9, axis=0))
        )
        assert ours < 0.5 * theirs


def test_after_three_days_active_users_are_distinguished(beginners):
    model = AnalogueForecaster().fit(frame(beginners, "D"))
    once, stays = np.array([[50.0, 0, 0]]), np.array([[50.0, 52, 47]])
    assert model.quantiles(once, 1, [0.9]).max() == 0
    assert model.quantiles(stays, 1, [0.1]).min() > 30


def test_forecasts_are_relative_to_the_level_of_the_new_user():
    y = np.outer(10.0 ** np.arange(30), [1.0, 2, 3, 4])
    model = AnalogueForecaster().fit(frame(y, "D"))
    small, large = model.quantiles(np.array([[3.0], [3e4]]), 2, [0.5])[0]
    np.testing.assert_allclose(large, small * 1e4)


def test_without_history_all_users_are_neighbours(beginners):
    model = AnalogueForecaster().fit(frame(beginners, "D"))
    found = model.quantiles(np.zeros((2, 4)), 3, [0.5])
    np.testing.assert_array_equal(found[0, 0], found[0, 1])
    assert found[0, 0, 0] == pytest.approx(
        np.median(beginners[np.arange(300), (beginners > 0).argmax(axis=1)]), rel=0.1
    )


def test_columns_and_timestamps(beginners):
    model = AnalogueForecaster().fit(frame(beginners, "D"))
    found = model.predict(frame(beginners[:5], "D"), h=2, level=[80, 95])
    assert found["ds"].min() == pd.Timestamp("2026-03-21")
    low, middle, high = (found[f"AnalogueForecaster{end}"] for end in ("-lo-80", "", "-hi-80"))
    assert ((low <= middle) & (middle <= high)).all()


def test_invalid_input_is_refused(beginners):
    with pytest.raises(InputError, match="any use"):
        AnalogueForecaster().fit(frame(np.zeros((3, 5)), "D"))
    with pytest.raises(InputError, match="shorter horizon"):
        AnalogueForecaster().fit(frame(beginners, "D")).quantiles(np.ones((1, 3)), 30, [0.5])
