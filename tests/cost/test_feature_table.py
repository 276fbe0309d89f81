"""Features of rows are those of the graph and never of the name."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.feature_table import ARCHITECTURE, EDGE, features_from_rows

pytest.importorskip("torch")
graphs = pytest.importorskip("benchmarks.measure.graphs", reason="runs from a checkout")
plans = pytest.importorskip("benchmarks.zoo.plans", reason="runs from a checkout")


@pytest.fixture(scope="module")
def rows():
    plan = plans.make_plan(6, networks=["lenet", "alexnet"], frameworks=["torch"], n_repeated=0, random_state=0)
    return pd.concat([plan, plan.assign(batch_size=7, optimizer="adam")], ignore_index=True)


@pytest.fixture(scope="module")
def traced(rows):
    return graphs.features_of_architectures(graphs.trace_graphs(rows))


def test_each_architecture_is_one_row(rows, traced):
    assert len(traced) == len(rows[list(ARCHITECTURE)].drop_duplicates())
    assert traced.index.names == list(ARCHITECTURE)
    assert traced.notna().all().all()


def test_no_column_identifies_the_network(rows, traced):
    table = features_from_rows(rows, traced)
    assert len(table) == len(rows)
    assert "network" not in table.columns
    assert not table.astype(str).isin(["lenet", "alexnet"]).any().any()


def test_hyper_parameters_are_columns(rows, traced):
    table = features_from_rows(rows, traced)
    adam = table["optimizer"] == "adam"
    assert (table.loc[adam, "optimizer_states"] == 2).all()
    assert (table.loc[len(rows) // 2 :, "batch_size"] == 7).all()
    assert (table["depth"] > 4).all()  # of the graph, not the factor on the blocks
    assert table.filter(regex=f"^{EDGE}Conv->").to_numpy().sum() > 0


def test_rows_of_several_gpus_are_said(rows, traced):
    names = ["H200", "T4"] * (len(rows) // 2)
    with pytest.warns(UserWarning, match=r"rows are of 2 devices \(H200, T4\), which these features do not tell apart"):
        features_from_rows(rows.assign(device_name=names), traced)


def test_tracing_is_deterministic(rows, traced):
    few = rows.head(2)
    again = graphs.features_of_architectures(graphs.trace_graphs(few))
    pd.testing.assert_frame_equal(
        features_from_rows(few, again), features_from_rows(few, traced), check_column_type=False
    )


def test_invalid_rows_are_rejected(rows, traced):
    with pytest.raises(InputError, match="not in `traced`"):
        features_from_rows(rows.assign(width=9.0), traced)
    with pytest.raises(InputError, match="no jobs"):
        features_from_rows(rows.iloc[:0], traced)
    with pytest.raises(InputError, match="lacks the column"):
        features_from_rows(rows.drop(columns="width"), traced)
