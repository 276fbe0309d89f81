"""Splits hold out whole families and devices, and rows beyond bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from gpudemand._validation import InputError
from gpudemand.cost.splits import DeviceSplit, ExtrapolationSplit, FamilySplit, InterpolationSplit, family_of

NAMES = np.array(["resnet18", "seresnet50", "vgg16", "vgg19_bn", "mobilenet_v2", "mobilenetv3_large_100", "resnet18"])


@pytest.fixture
def rows():
    batch = np.tile([8, 16, 32, 64, 128], 4)
    return pd.DataFrame({"batch_size": batch, "n_gpus": np.repeat([1, 2, 4, 8], 5), "name": "resnet18"})


@pytest.mark.parametrize(
    ("names", "family"),
    [
        ("resnet50 tf_resnet50 gluon_resnet18_v1b ssl_resnet50 ecaresnet50t skresnet18 legacy_seresnet50", "resnet"),
        ("resnetv2_50x1_bit resnetrs101 resnetblur50 resnet50.a1_in1k timm/resnet50.a1_in1k wide_resnet50_2", "resnet"),
        ("resnext50_32x4d gluon_seresnext50_32x4d ig_resnext101_32x8d seresnextaa101d_32x8d", "resnext"),
        ("tf_efficientnet_b0 efficientnetv2_rw_s tf_efficientnet_lite0 gc_efficientnetv2_rw_t", "efficientnet"),
        ("mobilenetv2_100 mobilenet_v3_large tf_mobilenetv3_small_075 mobilenetv1_100", "mobilenet"),
        ("regnetx_002 regnety_016 regnetz_c16 regnetv_040 regnet_y_400mf haloregnetz_b", "regnet"),
        ("mnasnet0_5 semnasnet_075 mnasnet_100", "mnasnet"),
        ("inception_v3 adv_inception_v3 tf_inception_v3", "inception"),
        ("inception_resnet_v2 ens_adv_inception_resnet_v2", "inceptionresnet"),
        ("res2net50_26w_4s res2next50", "res2net"),
        ("swin_base_patch4_window7_224 swinv2_tiny_window8_256 swin_t", "swin"),
        ("vit_base_patch16_224 test_vit", "vit"),
        ("nest_base jx_nest_base nest_base_jx", "nest"),
        ("beit_base_patch16_224 beitv2_base_patch16_224 beit3_base_patch16_224", "beit"),
        ("vovnet39a ese_vovnet19b_dw eca_vovnet39b", "vovnet"),
        ("senet154 legacy_senet154", "senet"),
        ("bert-base-uncased bert_large", "bert"),
        ("resnet18 preact_resnet18 se_resnet18 wide_resnet16_4", "resnet"),
        ("googlenet inception_v3", "inception"),
        ("lstm gru", "recurrent"),
    ],
)
def test_family_of(names, family):
    assert {name: family_of(name) for name in names.split()} == dict.fromkeys(names.split(), family)


def test_a_name_without_letters_has_no_family():
    with pytest.raises(InputError, match="no first word"):
        family_of("50")


def test_every_public_network_has_a_family(shared_data):
    tables = [pd.read_csv(path) for path in (shared_data / "cost" / "timm").glob("*train*.csv")]
    names = pd.concat(tables)["model"].drop_duplicates()
    sizes = names.map(family_of).value_counts()
    assert 30 < len(sizes) < 120
    assert sizes.max() < 0.25 * len(names)


@pytest.mark.parametrize("n_splits", [None, 2, 3])
def test_no_family_is_on_both_sides(n_splits):
    split = FamilySplit(n_splits)
    tested = []
    for train, test in split.split(NAMES, groups=NAMES):
        assert not {family_of(n) for n in NAMES[train]} & {family_of(n) for n in NAMES[test]}
        tested.extend(test)
    assert sorted(tested) == list(range(len(NAMES)))
    assert split.get_n_splits(NAMES, groups=NAMES) == (n_splits or 3)


def test_devices_with_one_die_are_held_out_together():
    names = ["NVIDIA GeForce RTX 3090", "A40", "T4", "H100", "NVIDIA H200", "RTX A6000"]
    tests = [set(test) for _, test in DeviceSplit().split(names, groups=names)]
    assert sorted(tests, key=min) == [{0, 1, 5}, {2}, {3, 4}]


def test_rows_beyond_any_bound_are_the_test(rows):
    [(train, test)] = ExtrapolationSplit({"batch_size": 32, "n_gpus": 2}).split(rows)
    assert rows.iloc[train]["batch_size"].max() == 32
    assert rows.iloc[train]["n_gpus"].max() == 2
    assert ((rows.iloc[test]["batch_size"] > 32) | (rows.iloc[test]["n_gpus"] > 2)).all()
    assert len(train) + len(test) == len(rows)
    [(train, test)] = ExtrapolationSplit({"batch_size": 32}, side="below").split(rows)
    assert rows.iloc[test]["batch_size"].max() == 16


def test_interpolation_never_tests_the_extremes(rows):
    for step in (2, 3, 4):
        [(train, test)] = InterpolationSplit("batch_size", step=step).split(rows)
        assert {8, 128} <= set(rows.iloc[train]["batch_size"])
        assert not set(rows.iloc[train]["batch_size"]) & set(rows.iloc[test]["batch_size"])
    [(_, test)] = InterpolationSplit("batch_size", values=[32]).split(rows)
    assert set(rows.iloc[test]["batch_size"]) == {32}


def test_scikit_learn_takes_them_as_cv(rows):
    X, y = rows[["batch_size", "n_gpus"]], 3.0 * rows["batch_size"] + rows["n_gpus"]
    for cv in (ExtrapolationSplit({"batch_size": 32}), InterpolationSplit("batch_size")):
        assert cross_val_score(LinearRegression(), X, y, cv=cv) == pytest.approx([1.0])
    names = np.repeat(["resnet18", "vgg16"], 10)
    assert len(cross_val_score(LinearRegression(), X, y, cv=FamilySplit(2), groups=names)) == 2
    assert "bounds={'batch_size': 32}" in repr(ExtrapolationSplit({"batch_size": 32}))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (FamilySplit(), "needs groups, the network of each row"),
        (DeviceSplit(), "needs groups, the device of each row"),
        (ExtrapolationSplit({"batch": 8}), r"X lacks the column\(s\) batch"),
        (ExtrapolationSplit({}), "bounds must name columns"),
        (ExtrapolationSplit({"batch_size": 128}), "into the training set"),
        (ExtrapolationSplit({"batch_size": 1}), "into the test set"),
        (ExtrapolationSplit({"batch_size": 8}, side="over"), "side='over' is not known"),
        (ExtrapolationSplit({"name": 8}), "must hold numbers"),
        (InterpolationSplit("batch_size", step=1), "step must be"),
        (InterpolationSplit("batch_size", step=9), "into the training set"),
        (InterpolationSplit("batch_size", values=[128]), "must lie inside 8 and 128"),
    ],
)
def test_invalid_input_is_rejected(rows, split, message):
    with pytest.raises(InputError, match=message):
        list(split.split(rows))


def test_a_single_group_is_rejected(rows):
    with pytest.raises(InputError, match="all rows are 'resnet'"):
        list(FamilySplit(2).split(rows, groups=rows["name"]))


def test_more_folds_than_groups():
    with pytest.raises(InputError, match="n_splits=4 is more than the 3 groups"):
        list(FamilySplit(4).split(NAMES, groups=NAMES))


def test_an_unknown_device_is_named():
    with pytest.raises(InputError, match="not in the table"):
        list(DeviceSplit().split(["T4", "T44"], groups=["T4", "Voodoo 2"]))


def test_splitters_can_be_parameters():
    assert clone(FamilySplit(3), safe=False).n_splits == 3
