"""Networks by name, and the families of their names."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import family_of, networks
from tests.tiers import slow_where

#: Networks of many layers.
DEEP = ("resnet50", "mobilenet_v2", "vit_tiny")
SHAPES = {"image": ((3, 16, 16), (1, 28, 40), (3, 64, 64), (3, 224, 224)), "tokens": ((128,),)}


def recorded_calls(place, name, shape):
    """Shapes of a network's weights, and all operators that a forward pass calls: what its graph is made of."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    made = []

    def described(tensor):
        return tuple(tensor.shape), tensor.dtype, tensor.requires_grad

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made.append((str(function), str(tree_map_only(torch.Tensor, described, (args, kwargs)))))
            return function(*args, **(kwargs or {}))

    with torch.device("meta"):
        net = place.build(name, input_shape=shape, n_classes=17)
        samples = torch.zeros(2, *shape, dtype=torch.int64 if len(shape) == 1 else None)
        with Record():
            net(samples)
    return [tuple(weight.shape) for weight in net.parameters()], made


@pytest.mark.parametrize(
    ("name", "shape"),
    slow_where(
        lambda case: case[0] in DEEP and case[1] != (3, 64, 64),
        [(name, shape) for name, kind in networks.NETWORKS.items() for shape in SHAPES[kind]],
    ),
)
def test_networks_of_the_package_are_those_that_were_measured(name, shape):
    pytest.importorskip("torch")
    zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
    assert zoo.kind(name) == networks.NETWORKS[name]
    (own_weights, own_calls), (weights, calls) = (recorded_calls(place, name, shape) for place in (networks, zoo))
    assert own_weights == weights
    assert own_calls == calls
    assert len(calls) > len(weights) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "resnet51"}, "name='resnet51' is not known. Did you mean 'resnet50'?"),
        ({"input_shape": (3, 8, 8)}, "resnet18 needs at least 16 x 16 pixels"),
        ({"name": "bert", "input_shape": (3, 32, 32)}, r"bert takes tokens: input_shape must be \(length,\)"),
        ({"n_classes": 0}, "n_classes must be a whole number of at least 1; got 0"),
    ],
)
def test_invalid_networks_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        networks.build(**{"name": "resnet18", **changes})


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
