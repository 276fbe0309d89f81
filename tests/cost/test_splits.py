"""Splits hold out whole families and devices, and rows beyond bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from gpudemand._validation import InputError
from gpudemand.cost import family_of

splits = pytest.importorskip("benchmarks.cost.splits", reason="runs from a checkout")

NAMES = np.array(["resnet18", "seresnet50", "vgg16", "vgg19_bn", "mobilenet_v2", "mobilenetv3_large_100", "resnet18"])


@pytest.fixture
def rows():
    batch = np.tile([8, 16, 32, 64, 128], 4)
    return pd.DataFrame({"batch_size": batch, "n_gpus": np.repeat([1, 2, 4, 8], 5), "name": "resnet18"})


@pytest.mark.parametrize("n_splits", [None, 2, 3])
def test_no_family_is_on_both_sides(n_splits):
    split = splits.FamilySplit(n_splits)
    tested = []
    for train, test in split.split(NAMES, groups=NAMES):
        assert not {family_of(n) for n in NAMES[train]} & {family_of(n) for n in NAMES[test]}
        tested.extend(test)
    assert sorted(tested) == list(range(len(NAMES)))
    assert split.get_n_splits(NAMES, groups=NAMES) == (n_splits or 3)


def test_devices_with_one_die_are_held_out_together():
    names = ["NVIDIA GeForce RTX 3090", "A40", "T4", "H100", "NVIDIA H200", "RTX A6000"]
    tests = [set(test) for _, test in splits.DeviceSplit().split(names, groups=names)]
    assert sorted(tests, key=min) == [{0, 1, 5}, {2}, {3, 4}]


def test_rows_beyond_any_bound_are_the_test(rows):
    [(train, test)] = splits.ExtrapolationSplit({"batch_size": 32, "n_gpus": 2}).split(rows)
    assert rows.iloc[train]["batch_size"].max() == 32
    assert rows.iloc[train]["n_gpus"].max() == 2
    assert ((rows.iloc[test]["batch_size"] > 32) | (rows.iloc[test]["n_gpus"] > 2)).all()
    assert len(train) + len(test) == len(rows)
    [(train, test)] = splits.ExtrapolationSplit({"batch_size": 32}, side="below").split(rows)
    assert rows.iloc[test]["batch_size"].max() == 16


def test_interpolation_never_tests_the_extremes(rows):
    for step in (2, 3, 4):
        [(train, test)] = splits.InterpolationSplit("batch_size", step=step).split(rows)
        assert {8, 128} <= set(rows.iloc[train]["batch_size"])
        assert not set(rows.iloc[train]["batch_size"]) & set(rows.iloc[test]["batch_size"])
    [(_, test)] = splits.InterpolationSplit("batch_size", values=[32]).split(rows)
    assert set(rows.iloc[test]["batch_size"]) == {32}


def test_scikit_learn_takes_them_as_cv(rows):
    X, y = rows[["batch_size", "n_gpus"]], 3.0 * rows["batch_size"] + rows["n_gpus"]
    for cv in (splits.ExtrapolationSplit({"batch_size": 32}), splits.InterpolationSplit("batch_size")):
        assert cross_val_score(LinearRegression(), X, y, cv=cv) == pytest.approx([1.0])
    names = np.repeat(["resnet18", "vgg16"], 10)
    assert len(cross_val_score(LinearRegression(), X, y, cv=splits.FamilySplit(2), groups=names)) == 2
    assert "bounds={'batch_size': 32}" in repr(splits.ExtrapolationSplit({"batch_size": 32}))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (splits.FamilySplit(), "needs groups, the network of each row"),
        (splits.DeviceSplit(), "needs groups, the device of each row"),
        (splits.ExtrapolationSplit({"batch": 8}), r"X lacks the column\(s\) batch"),
        (splits.ExtrapolationSplit({}), "bounds must name columns"),
        (splits.ExtrapolationSplit({"batch_size": 128}), "into the training set"),
        (splits.ExtrapolationSplit({"batch_size": 1}), "into the test set"),
        (splits.ExtrapolationSplit({"batch_size": 8}, side="over"), "side='over' is not known"),
        (splits.ExtrapolationSplit({"name": 8}), "must hold numbers"),
        (splits.InterpolationSplit("batch_size", step=1), "step must be"),
        (splits.InterpolationSplit("batch_size", step=9), "into the training set"),
        (splits.InterpolationSplit("batch_size", values=[128]), "must lie inside 8 and 128"),
    ],
)
def test_invalid_input_is_rejected(rows, split, message):
    with pytest.raises(InputError, match=message):
        list(split.split(rows))


def test_a_single_group_is_rejected(rows):
    with pytest.raises(InputError, match="all rows are 'resnet'"):
        list(splits.FamilySplit(2).split(rows, groups=rows["name"]))


def test_more_folds_than_groups():
    with pytest.raises(InputError, match="n_splits=4 is more than the 3 groups"):
        list(splits.FamilySplit(4).split(NAMES, groups=NAMES))


def test_an_unknown_device_is_named():
    with pytest.raises(InputError, match="not in the table"):
        list(splits.DeviceSplit().split(["T4", "T44"], groups=["T4", "Voodoo 2"]))


def test_splitters_can_be_parameters():
    assert clone(splits.FamilySplit(3), safe=False).n_splits == 3
