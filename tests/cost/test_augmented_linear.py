"""Planted formulas are recovered and extrapolate."""

from __future__ import annotations

import time
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpudemand._validation import InputError
from gpudemand.cost.augmented_linear import (
    AugmentedLinearRegression,
    Factor,
    candidate_factors,
    n_products,
    products,
    select_forward,
)

#: Checks of scikit-learn that do not apply, with the reason. None so far.
EXEMPT: dict[str, str] = {}


def sklearn_checks():
    """Every check of scikit-learn as a parameter; the decorator's own generator is refused by the newest pytest."""
    marks = parametrize_with_checks([AugmentedLinearRegression(), AugmentedLinearRegression(solver="nnls", degree=1)])
    return pytest.mark.parametrize(marks.args[0], list(marks.args[1]), ids=marks.kwargs["ids"])


@sklearn_checks()
def test_scikit_learn_checks(estimator, check):
    name = getattr(check, "func", check).__name__
    if name in EXEMPT:
        pytest.skip(EXEMPT[name])
    check(estimator)


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "flops": np.exp(generator.uniform(0, 6, n)),
            "batch_size": generator.choice([8, 16, 32, 64, 128], n),
            "n_gpus": generator.choice([1, 2, 4, 8], n),
            "parameters": np.exp(generator.uniform(0, 3, n)),
            "noise": generator.normal(size=n),
            "zeros": generator.choice([0.0, 1.0, 5.0], n),
        }
    )


def planted(rows):
    work = 0.02 * rows["flops"] * rows["batch_size"] / rows["n_gpus"]
    return (0.3 + work + 0.1 * rows["parameters"]).rename("step_time_s")


@pytest.mark.parametrize("solver", ["ridge", "nnls"])
def test_a_planted_formula_is_recovered_and_extrapolates(rows, solver):
    y = planted(rows)
    beyond = ((rows["batch_size"] > 32) | (rows["n_gpus"] > 2)).to_numpy()
    train, test = np.flatnonzero(~beyond), np.flatnonzero(beyond)
    model = AugmentedLinearRegression(degree=3, solver=solver, max_candidates=2000)
    model.fit(rows.iloc[train], y.iloc[train])
    assert set(model.selected_) == {"flops * batch_size / n_gpus", "parameters"}
    assert model.intercept_ == pytest.approx(0.3, rel=1e-3)
    error = np.abs(model.predict(rows.iloc[test]) / y.iloc[test] - 1)
    forest = RandomForestRegressor(n_estimators=50, random_state=0).fit(rows.iloc[train], y.iloc[train])
    lost = np.abs(forest.predict(rows.iloc[test]) / y.iloc[test] - 1)
    assert error.max() < 0.001
    assert lost.median() > 0.1
    assert model.formula_.startswith("step_time_s = 0.3 ")
    assert "0.02 * flops * batch_size / n_gpus" in model.formula_


def test_noise_is_not_selected(rows):
    noisy = planted(rows) * np.exp(np.random.default_rng(1).normal(0, 0.05, len(rows)))
    model = AugmentedLinearRegression(degree=3, max_candidates=2000).fit(rows, noisy)
    assert len(model.selected_) <= 6
    assert "flops * batch_size / n_gpus" in model.selected_
    assert model.scores_[-1] < 0.05
    assert np.all(np.diff(model.scores_) < 0)


def test_categories_have_slopes_of_their_own(rows):
    gpu = np.where(np.arange(len(rows)) % 2, "fast", "slow")
    y = rows["flops"] * np.where(gpu == "fast", 1.0, 3.0) + 10
    table = rows[["flops"]].assign(gpu=gpu)
    model = AugmentedLinearRegression().fit(table, y)
    assert model.predict(table) == pytest.approx(y.to_numpy(), rel=1e-4)
    assert any("[gpu is " in term for term in model.selected_)
    with pytest.raises(InputError, match="gpu='unheard of' was not in training"):
        model.predict(table.head(1).assign(gpu="unheard of"))
    shuffled = table[["gpu", "flops"]]
    assert model.predict(shuffled) == pytest.approx(model.predict(table))


@pytest.mark.parametrize(
    "store",
    [
        lambda rows: rows.astype(object),
        lambda rows: rows.assign(n_gpus=rows["n_gpus"].map(Decimal), flops=rows["flops"].map(Decimal)),
        lambda rows: rows.convert_dtypes(dtype_backend="pyarrow"),
        lambda rows: pa.Table.from_pandas(rows),
    ],
    ids=["objects", "decimals", "Arrow", "a table of Arrow"],
)
@pytest.mark.parametrize("text", [{}, {"device": "A100"}], ids=["numbers", "with text"])
def test_numbers_are_numbers_however_they_are_stored(rows, store, text):
    rows, more = rows.assign(**text), rows.iloc[:9].assign(flops=1e3, **text)
    plain = AugmentedLinearRegression(max_terms=3).fit(rows, planted(rows))
    model = AugmentedLinearRegression(max_terms=3).fit(store(rows), planted(rows))
    assert model.formula_ == plain.formula_
    np.testing.assert_allclose(model.predict(store(more)), plain.predict(more))


def test_columns_that_are_categorical_are_categories(rows):
    table = rows[["flops"]].assign(rank=pd.Categorical(np.arange(len(rows)) % 3))
    model = AugmentedLinearRegression(max_terms=2).fit(table, planted(rows))
    assert model.categories_ == {"rank": ["0", "1", "2"]}
    with pytest.raises(InputError, match="column day of X holds datetime64"):
        model.fit(table.assign(day=pd.Timestamp("2026-03-01")), planted(rows))


def test_products_exclude_inverses_and_categories_of_one_column(rows):
    table = rows[["flops", "zeros"]].assign(gpu=np.where(rows["flops"] > 50, "a", "b"))
    factors = candidate_factors(table)
    terms = products(factors, 3)
    for term in terms:
        for name in {factor.column for factor in term}:
            transforms = [factor.transform for factor in term if factor.column == name]
            assert not {"x", "1/x"} <= set(transforms)
            assert transforms.count("is") <= 1
    assert len(set(terms)) == len(terms) < n_products(len(factors), 3)


def test_columns_with_zeros_and_negative_values_are_accepted(rows):
    transforms = {(factor.column, factor.transform) for factor in candidate_factors(rows)}
    assert {("zeros", "1/(1 + x)"), ("zeros", "log(1 + x)"), ("flops", "1/x"), ("noise", "x")} <= transforms
    assert ("noise", "log(x)") not in transforms
    assert ("zeros", "1/x") not in transforms
    y = 1 + np.log1p(rows["zeros"])
    model = AugmentedLinearRegression(degree=1).fit(rows, y)
    assert model.selected_ == ["log(1 + zeros)"]


def test_a_column_that_becomes_zero_is_named(rows):
    model = AugmentedLinearRegression(degree=1).fit(rows, (1 + 5 / rows["n_gpus"]).rename("time"))
    assert model.formula_ == "time = 1 + 5 / n_gpus"
    with pytest.raises(InputError, match="n_gpus was positive in training and now holds 400 values"):
        model.predict(rows.assign(n_gpus=0))


def test_selection_agrees_with_refitting_every_candidate(rows):
    columns = rows.to_numpy(dtype=float)
    target = planted(rows).to_numpy() + rows["noise"].to_numpy()
    folds = list(KFold(4).split(columns))
    start = np.ones(len(rows))
    selected, errors = select_forward(columns, start, target, folds, max_terms=3, tol=0.0, positive=False)
    picked: list[int] = []
    for error in errors[1:]:
        slow = {}
        for candidate in set(range(columns.shape[1])) - set(picked):
            used = columns[:, [*picked, candidate]]
            fits = [(test, LinearRegression().fit(used[train], target[train])) for train, test in folds]
            slow[candidate] = np.concatenate([np.abs(target[t] - fit.predict(used[t])) for t, fit in fits]).mean()
        picked.append(min(slow, key=lambda name: slow[name]))
        assert error == pytest.approx(slow[picked[-1]], rel=1e-6)
    assert picked == selected


def test_collinear_columns_are_not_selected(rows):
    twice = pd.DataFrame({"a": rows["flops"], "b": 2 * rows["flops"], "c": rows["parameters"]})
    model = AugmentedLinearRegression(degree=1, inverse=False, log=False, tol=0.0).fit(twice, rows["flops"] + 1)
    assert len({"a", "b"} & set(model.selected_)) == 1


def test_groups_are_held_out_together(rows):
    group = rows["n_gpus"].to_numpy()
    # The cost of each group is arbitrary: fitted if the group is in training, not predictable if it is held out.
    arbitrary = {1: 1.0, 2: 9.0, 4: 2.0, 8: 7.0}
    y = rows["n_gpus"].map(arbitrary).to_numpy() * rows["flops"]
    table = rows[["flops"]].assign(group=group.astype(str))
    free = AugmentedLinearRegression().fit(table, y)
    held = AugmentedLinearRegression().fit(table, y, groups=group)
    assert free.scores_[-1] < 0.01 < held.scores_[-1]
    with pytest.raises(InputError, match="single group"):
        AugmentedLinearRegression().fit(table, y, groups=np.zeros(len(y)))


def test_relative_errors_are_minimised_by_default(rows):
    y = planted(rows)
    bent = y * np.where(y > y.median(), 1.3, 1.0)
    median = {}
    for weighting in ("relative", "absolute"):
        model = AugmentedLinearRegression(degree=1, max_terms=2, weighting=weighting).fit(rows, bent)
        median[weighting] = np.median(np.abs(model.predict(rows) / bent - 1))
    assert median["relative"] < median["absolute"]
    with pytest.raises(InputError, match="relative errors need positive costs; y holds 1 that are not"):
        AugmentedLinearRegression(weighting="relative").fit(rows, y.where(y.index > 0, 0.0))


def test_nnls_coefficients_are_non_negative(rows):
    y = planted(rows) - 0.05 * rows["parameters"] + 0.01 * rows["noise"]
    model = AugmentedLinearRegression(solver="nnls").fit(rows, y)
    assert (model.coef_ > 0).all()
    assert model.intercept_ >= 0


def test_cv_may_be_a_splitter(rows):
    model = AugmentedLinearRegression(degree=1, cv=PredefinedSplit(np.where(rows["batch_size"] > 64, 0, -1))).fit(
        rows, planted(rows)
    )
    assert len(model.scores_) == len(model.selected_) + 1


def test_the_order_of_rows_does_not_matter(rows):
    y = planted(rows)
    first = AugmentedLinearRegression().fit(rows, y)
    again = AugmentedLinearRegression().fit(rows, y)
    assert first.formula_ == again.formula_
    assert first.predict(rows.iloc[::-1]) == pytest.approx(first.predict(rows)[::-1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"degree": 4}, "degree must be"),
        ({"solver": "lasso"}, "solver='lasso' is not known"),
        ({"alpha": -1}, "alpha must be"),
        ({"cv": 1}, "cv must be"),
        ({"max_terms": 0}, "max_terms must be"),
        ({"weighting": "relativ"}, "Did you mean 'relative'"),
    ],
)
def test_parameters_out_of_range_are_rejected(rows, wrong, message):
    with pytest.raises(InputError, match=message):
        AugmentedLinearRegression(**wrong).fit(rows, planted(rows))


def test_tables_with_text_are_validated(rows):
    table, y = rows.assign(gpu="a"), planted(rows)
    with pytest.raises(InputError, match="missing or infinite"):
        AugmentedLinearRegression().fit(table.assign(flops=np.nan), y)
    with pytest.raises(InputError, match="3 values for 400 rows"):
        AugmentedLinearRegression().fit(table, y[:3])
    model = AugmentedLinearRegression(degree=1).fit(table, y)
    with pytest.raises(InputError, match=r"lacks the column\(s\) flops"):
        model.predict(table.drop(columns="flops"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": "v100"}, r"gpu='v100' was not in training. Did you mean 'V100'\? Training had: T4, V100\."),
        ({"gpu": None}, r"gpu='' was not in training\. Training had"),
        ({"gpu": "T4", "flops": "many"}, "flops of X held numbers in training and now does not"),
    ],
)
def test_what_was_not_in_training_is_not_priced_as_something_else(rows, change, message):
    table = rows.assign(gpu=np.where(np.arange(len(rows)) % 2, "T4", "V100"), note="of one kind")
    y = planted(rows) * np.where(table["gpu"] == "T4", 8.0, 1.0)
    model = AugmentedLinearRegression().fit(table, y)
    assert "[gpu is" in model.formula_
    few = table.head(2).assign(**change)
    with pytest.raises(InputError, match=message):
        model.predict(few)
    # A column that the formula does not have may hold anything.
    other = table.head(2).assign(note="of another kind")
    np.testing.assert_array_equal(model.predict(other), model.predict(table.head(2)))


@pytest.mark.parametrize(
    ("n", "change", "groups", "message"),
    [
        (1, 0.0, None, "X has 1 rows; two or more"),
        (9, np.nan, None, "y holds 9 missing values"),
        (9, 0.0, [1, 2], "groups has 2 values for 9 rows"),
        (9, 0.0, ["a", None, *"abababa"], "groups has 1 missing values"),
    ],
)
def test_values_that_are_missing_are_said(rows, n, change, groups, message):
    few = rows.head(n).assign(gpu="a")
    with pytest.raises(InputError, match=message):
        AugmentedLinearRegression().fit(few, planted(rows).head(n) + change, groups)


def test_thousands_of_candidates_take_seconds():
    generator = np.random.default_rng(0)
    wide = pd.DataFrame(np.exp(generator.normal(size=(600, 40)))).add_prefix("f")
    y = wide["f0"] * wide["f1"] + 0.5 / wide["f2"] + 1
    begin = time.perf_counter()
    model = AugmentedLinearRegression(max_terms=5).fit(wide, y)
    spent = time.perf_counter() - begin
    assert model.n_candidates_ > 3000
    assert {"f0 * f1", "1 / f2"} <= set(model.selected_)
    assert spent < 60  # about two seconds alone; the margin is for a busy machine


def test_factors_as_text():
    assert str(Factor("n", "log(1 + x)")) == "log(1 + n)"
    assert str(Factor("gpu", "is", "T4")) == "[gpu is T4]"
