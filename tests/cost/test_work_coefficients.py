"""Coefficients of work: pooled by hardware unit, non-negative, robust, and shrunk."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.cost import step_time_model as work_coefficients
from gpudemand.cost.operators import KINDS, UNIT_OF
from gpudemand.cost.step_time_model import fit_work_coefficients, pooled_names

TRUTH = pd.Series({
    "work:gemm:flops": 1.6, "work:conv_3x3:flops": 2.4, "work:gemm:bytes": 1.2, "work:softmax:bytes": 2.0,
    "work:pointwise:bytes": 1.3, "work:pointwise:launch": 0.7, "work:conv_depthwise:flops": 5.0,
    "work:update": 1.5, "work:start": 2.0,
})  # fmt: skip
#: Terms that matter to the seconds of some rows.
MAIN = TRUTH.index[:-1]


def planted(n: int = 400, noise: float = 0.05, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Terms of which most rows lack some, and the seconds that they take."""
    rng = np.random.default_rng(seed)
    terms = pd.DataFrame(np.exp(rng.normal(-4.0, 1.5, (n, len(TRUTH)))), columns=TRUTH.index)
    terms = terms * (rng.random(terms.shape) < 0.6)
    terms["work:start"] = 1e-3
    return terms, terms.to_numpy() @ TRUTH.to_numpy() * np.exp(noise * rng.normal(size=n))


def test_terms_are_pooled_by_unit_of_the_hardware() -> None:
    for kind, unit in UNIT_OF.items():
        assert pooled_names([f"work:{kind}:flops", f"work:{kind}:bytes"]) == [f"{unit}:flops", f"{unit}:bytes"]
    assert set(pooled_names(f"work:{kind}:launch" for kind in KINDS)) == {"launch"}
    assert pooled_names(["work:update", "work:start"]) == ["update", "start"]


def test_the_truth_is_recovered() -> None:
    terms, y = planted()
    found = fit_work_coefficients(terms, y)
    assert list(found.index) == list(TRUTH.index)
    np.testing.assert_allclose(found[MAIN], TRUTH[MAIN], rtol=0.05)


@pytest.mark.parametrize("factor", [0.05, 20.0])
def test_one_outlier_in_ten_does_not_move_the_coefficients(factor: float) -> None:
    terms, y = planted(noise=0.03)
    y[::10] *= factor
    found = fit_work_coefficients(terms, y)
    np.testing.assert_allclose(found[MAIN], TRUTH[MAIN], rtol=0.05)


def test_coefficients_are_never_negative() -> None:
    terms, y = planted()
    # The more of it, the less time: least squares would take its coefficient below zero.
    y = y * np.exp(-0.5 * terms["work:softmax:bytes"] / terms["work:softmax:bytes"].mean())
    least_squares = np.linalg.lstsq(terms.to_numpy() / y.to_numpy()[:, None], np.ones(len(y)), rcond=None)[0]
    assert least_squares.min() < 0
    assert (fit_work_coefficients(terms, y.to_numpy()) >= 0).all()


def test_an_unmeasured_kind_takes_the_pooled_coefficients_of_its_unit() -> None:
    rng = np.random.default_rng(1)
    columns = [f"work:{kind}:{term}" for kind in ("gemm", "conv_3x3") for term in ("flops", "bytes")]
    columns += [f"work:{kind}:{term}" for kind in ("softmax", "pool") for term in ("bytes", "launch")]
    terms = pd.DataFrame(np.exp(rng.normal(size=(5_000, len(columns)))), columns=columns)
    truth = np.array([2.0, 1.5, 2.0, 1.5, 3.0, 0.5, 3.0, 0.5])
    missing = {
        "work:attention:flops": 2.0,
        "work:attention:bytes": 1.5,
        "work:sort:bytes": 3.0,
        "work:sort:launch": 0.5,
    }
    found = fit_work_coefficients(terms.assign(**dict.fromkeys(missing, 0.0)), terms.to_numpy() @ truth)
    np.testing.assert_allclose(found[list(missing)], list(missing.values()), rtol=0.05)


def test_unmeasured_attention_is_no_faster_than_it_sustains() -> None:
    terms = pd.DataFrame({"work:conv_3x3:flops": np.linspace(1.0, 4.0, 200), "work:attention:flops": 0.0})
    found = fit_work_coefficients(terms, 0.4 * terms["work:conv_3x3:flops"].to_numpy())
    np.testing.assert_allclose(found, [0.4, 1.0], rtol=0.1)
    measured = terms.assign(**{"work:attention:flops": terms["work:conv_3x3:flops"].to_numpy()[::-1]})
    found = fit_work_coefficients(measured, measured.sum(axis=1).to_numpy() * 0.6)
    np.testing.assert_allclose(found, [0.6, 0.6], rtol=0.1)


def test_no_work_is_free() -> None:
    terms, y = planted()
    found = fit_work_coefficients(terms.assign(**{"work:fft:flops": 0.0, "work:allreduce": 0.0}), y)
    assert (found[["work:fft:flops", "work:allreduce"]] > 0).all()


def test_scales_of_terms_and_order_of_rows_do_not_matter() -> None:
    terms, y = planted()
    found = fit_work_coefficients(terms, y)
    order = np.random.default_rng(2).permutation(len(y))
    np.testing.assert_allclose(fit_work_coefficients(terms.iloc[order], y[order]), found, rtol=1e-6)
    np.testing.assert_allclose(fit_work_coefficients(1e3 * terms, 1e3 * y), found, rtol=1e-6)


def few_rows() -> tuple[pd.DataFrame, np.ndarray]:
    """Eight kinds of equal coefficients in 48 noisy rows."""
    rng = np.random.default_rng(0)
    kinds = [kind for kind, unit in UNIT_OF.items() if unit == "memory"][:8]
    terms = pd.DataFrame(np.exp(rng.normal(size=(48, 8))), columns=[f"work:{kind}:bytes" for kind in kinds])
    return terms, terms.to_numpy() @ np.full(8, 2.0) * np.exp(0.3 * rng.normal(size=48))


def test_equal_kinds_are_shrunk_together(monkeypatch: pytest.MonkeyPatch) -> None:
    terms, y = few_rows()
    shrunk = fit_work_coefficients(terms, y)
    monkeypatch.setattr(work_coefficients, "_PENALTY", 1e-6)
    alone = fit_work_coefficients(terms, y)
    assert np.abs(np.log(shrunk / 2.0)).mean() <= np.abs(np.log(np.maximum(alone, 0.05) / 2.0)).mean()
