"""Costs of a known law are recovered on held-out networks, with intervals that cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.graph_features import OPERATOR_CLASSES
from gpudemand.cost.regression import AdditiveCostModel
from gpudemand.cost.training_cost import TrainingCostRegressor, _select_weight


def simulate(n_networks=40, n_each=12, seed=0, noise=0.03):
    """Features of simulated networks, and costs of a known law with a correction by structure."""
    rng = np.random.default_rng(seed)
    frames = []
    for network in range(n_networks):
        mix = rng.dirichlet(np.ones(len(OPERATOR_CLASSES)))
        size = 10 ** rng.uniform(6, 9, n_each)
        frame = {
            "framework": rng.choice(["torch", "keras"], n_each),
            "batch_size": rng.integers(2, 65, n_each).astype(float),
        }
        frame |= {"optimizer_states": rng.integers(0, 3, n_each).astype(float), "network": network}
        for amount, unit in (("flops", 1.0), ("bytes", 0.1), ("saved_bytes", 0.03), ("calls", 1e-7)):
            for share, group in zip(mix, OPERATOR_CLASSES, strict=True):
                frame[f"{amount}_{group}"] = share * size * unit
            frame[amount] = size * unit
        frame |= {"trainable_parameters": size / 50, "largest_output_bytes": size / 300, "operators": size**0.3}
        frame |= {"edge:Conv->Relu": np.full(n_each, mix[0] * 30), "edge:Add->Relu": np.full(n_each, mix[1] * 30)}
        frames.append(pd.DataFrame(frame))
    X = pd.concat(frames, ignore_index=True)
    work = X["batch_size"] * (X["flops"] / 2e11 + X["bytes"] / 1e10) + 0.002
    structure = 1 + 0.3 * X["edge:Conv->Relu"] / (1 + X["edge:Conv->Relu"])
    slower = np.where(X["framework"] == "keras", 1.4, 1.0)
    y = (work * structure * slower * np.exp(rng.normal(0, noise, len(X)))).to_numpy()
    return X.drop(columns="network"), y, X["network"].to_numpy()


@pytest.fixture(scope="module")
def fitted():
    X, y, groups = simulate()
    train = groups < 32
    return (
        TrainingCostRegressor(learner="extra_trees", n_splits=3).fit(X[train], y[train], groups[train]),
        X[~train],
        y[~train],
    )


@pytest.mark.slow
def test_held_out_networks_are_predicted(fitted):
    model, X, y = fitted
    assert np.median(np.abs(model.predict(X) / y - 1)) < 0.10
    assert model.scores_["extra_trees"] < 0.10


@pytest.mark.slow
def test_intervals_cover_and_nest(fitted):
    model, X, y = fitted
    wide, narrow = model.predict_interval(X, 90), model.predict_interval(X, 50)
    assert 0.75 <= ((y >= wide[:, 0]) & (y <= wide[:, 1])).mean() <= 1.0
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (narrow[:, 1] <= wide[:, 1]).all()


@pytest.mark.slow
def test_predictions_extrapolate_to_larger_batches(fitted):
    model, X, _ = fitted
    larger = X.assign(batch_size=X["batch_size"] * 16)
    ratio = model.predict(larger) / model.predict(X)
    assert np.median(ratio) > 8


@pytest.mark.slow
def test_refitting_is_deterministic():
    X, y, groups = simulate(4, 6)
    once, again = (TrainingCostRegressor(learner="extra_trees", n_splits=2).fit(X, y, groups) for _ in range(2))
    np.testing.assert_array_equal(once.predict(X), again.predict(X))


@pytest.mark.slow
def test_auto_selects_the_learner_with_the_smallest_held_out_error():
    X, y, groups = simulate(n_networks=10, n_each=12)
    model = TrainingCostRegressor(n_splits=2).fit(X, y, groups)
    assert model.scores_[model.learner_] == min(model.scores_.values())
    assert set(model.scores_) == {"extra_trees", "random_forest", "gradient_boosting", "knn", "ridge"}


def test_the_mlp_is_fitted_on_request():
    X, y, groups = simulate(n_networks=10, n_each=12)
    model = TrainingCostRegressor(learner="mlp", n_splits=2).fit(X, y, groups)
    assert (model.learner_, np.isfinite(model.predict(X)).all()) == ("mlp", True)


def test_coefficients_are_non_negative_and_differ_by_framework():
    X, y, _ = simulate(noise=0.0)
    model = AdditiveCostModel("time").fit(X, y)
    assert all((coefficients >= 0).all() for coefficients in model.coefficients_.values())
    torch, keras = (model.predict(X.assign(framework=name)) for name in ("torch", "keras"))
    assert np.median(keras / torch) == pytest.approx(1.4, abs=0.15)
    assert np.isfinite(model.predict(X.assign(framework="jax"))).all()


def test_a_framework_with_fewer_rows_than_terms_has_no_coefficients_of_its_own():
    X, y, _ = simulate(4, 20)
    X = X.assign(framework=np.where(np.arange(len(X)) < 10, "rare", "common"))
    assert set(AdditiveCostModel("time").fit(X, y).coefficients_) == {"", "common"}


def test_memory_of_a_known_law_is_recovered():
    X, _, groups = simulate()
    y = (
        0.02
        + 4e-9 * X["trainable_parameters"] * (1 + X["optimizer_states"])
        + 2e-9 * X["saved_bytes"] * X["batch_size"]
    ).to_numpy()
    model = TrainingCostRegressor("memory", learner="ridge").fit(X, y, groups)
    assert np.median(np.abs(model.predict(X) / y - 1)) < 0.02


def test_edges_missing_in_training_or_prediction_are_accepted(fitted):
    model, X, _ = fitted
    fewer = X.drop(columns="edge:Add->Relu").assign(**{"edge:New->Relu": 3.0})
    assert np.isfinite(model.predict(fewer)).all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"target": "tme"}, "Did you mean 'time'"),
        ({"learner": "extra trees"}, "Did you mean 'extra_trees'"),
        ({"n_splits": 1}, "of at least 2"),
    ],
)
def test_invalid_parameters_are_rejected(change, reason):
    X, y, groups = simulate(3, 10)
    with pytest.raises(InputError, match=reason):
        TrainingCostRegressor(**change).fit(X, y, groups)


def test_invalid_data_are_rejected(fitted):
    X, y, groups = simulate(3, 10)
    model = TrainingCostRegressor(learner="ridge")
    with pytest.raises(InputError, match="2 values that are not positive"):
        model.fit(X, np.r_[y[:-2], 0.0, np.nan], groups)
    with pytest.raises(InputError, match="values for 30 jobs"):
        model.fit(X, y[:-1], groups)
    with pytest.raises(InputError, match="single group"):
        model.fit(X, y, np.zeros(30))
    with pytest.raises(InputError, match=r"lacks the column\(s\) flops"):
        model.fit(X.drop(columns="flops"), y)
    with pytest.raises(InputError, match="lacks the column"):
        fitted[0].predict(X.drop(columns="batch_size"))
    with pytest.raises(InputError, match="must be a table"):
        model.fit(X.to_numpy(dtype=object), y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size of X holds 30 values that are missing, infinite, or below 1"),
        ({"batch_size": -4.0}, "batch_size"),
        ({"flops": np.nan}, "flops of X holds 30 values"),
        ({"largest_output_bytes": np.inf}, "largest_output_bytes of X holds 30 values that are missing, infinite;"),
    ],
)
def test_numbers_that_are_none_are_rejected(fitted, change, message):
    X, y, groups = simulate(3, 10)
    with pytest.raises(InputError, match=message):
        TrainingCostRegressor(learner="ridge").fit(X.assign(**change), y, groups)
    with pytest.raises(InputError, match=message):
        fitted[0].predict(X.assign(**change))


def test_numbers_stored_as_objects_are_checked_too(fitted):
    model, X, _ = fitted
    np.testing.assert_array_equal(model.predict(X.astype(object)), model.predict(X))
    with pytest.raises(InputError, match="the column batch_size of X holds 1 values"):
        model.predict(X.astype(object).assign(batch_size=[0, *[8] * (len(X) - 1)]).astype({"batch_size": object}))


def test_tables_too_small_and_groups_without_names_are_rejected(fitted):
    X, y, groups = simulate(3, 10)
    with pytest.raises(InputError, match="X has no rows"):
        fitted[0].predict(X.iloc[:0])
    with pytest.raises(InputError, match="there are 1 rows; two or more"):
        TrainingCostRegressor(learner="ridge").fit(X.iloc[:1], y[:1])
    with pytest.raises(InputError, match="groups has 1 missing values"):
        TrainingCostRegressor(learner="ridge").fit(X, y, np.r_[None, groups[1:].astype(str)])


def test_gpus_that_no_column_tells_apart_are_said():
    X, y, groups = simulate(3, 10)
    both, costs, networks = pd.concat([X, X], ignore_index=True), np.r_[y, 12 * y], np.r_[groups, groups]
    model = TrainingCostRegressor(learner="ridge")
    with pytest.warns(UserWarning, match=r"jobs with equal features have costs 12 times apart \(median of 30\)"):
        model.fit(both, costs, networks)
    model.fit(both, np.r_[y, 1.1 * y], networks)
    model.fit(both.assign(device_name=["H200"] * 30 + ["T4"] * 30), costs, networks)


def test_a_correction_that_is_noise_has_weight_zero():
    rng = np.random.default_rng(0)
    residual, noise = rng.normal(0, 0.05, 400), rng.normal(0, 0.3, 400)
    assert _select_weight(residual, noise)[0] == 0.0
    assert _select_weight(noise + residual, noise)[0] == 1.0
