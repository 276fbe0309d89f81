"""Networks of the zoo have the published sizes, in both frameworks."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import family_of
from tests.tiers import slow_where

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")

#: Parameters at 224 pixels and 1,000 classes as published with the reference implementations.
PUBLISHED = {
    "alexnet": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13": 133_047_848,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "se_resnet18": 11_778_592,
    "wide_resnet50_2": 68_883_240,
    "resnext50": 25_028_904,
    "regnetx_400mf": 5_495_976,
    "densenet121": 7_978_856,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "googlenet": 6_624_904,
    "inception_v3": 23_834_568,
    "xception": 22_855_952,
    "nasnet_mobile": 5_289_978,
    "squeezenet": 1_235_496,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_small": 2_542_856,
    "mobilenet_v3_large": 5_483_032,
    "mnasnet": 4_383_312,
    "efficientnet_b0": 5_288_548,
    "shufflenet_v2": 2_278_604,
    "convnext_tiny": 28_589_128,
    "vit_tiny": 5_717_416,
    "vit_small": 22_050_664,
    "vit_base": 86_567_656,
}
#: The common versions for CIFAR-10, which LeNet was before there was CIFAR-10.
CIFAR = {
    "lenet": (1, 61_706),
    "resnet18": (3, 11_173_962),
    "preact_resnet18": (3, 11_172_170),
    "wide_resnet16_4": (3, 2_748_890),
}
#: Multiply-adds of one image at 224 pixels, as published to three digits.
PUBLISHED_GMACS = {"resnet50": 4.09, "vgg16": 15.47, "densenet121": 2.83, "mobilenet_v2": 0.30, "vit_small": 4.60}
#: The shallowest network of each family.
FAMILIES = sorted({family_of(name): name for name in reversed(zoo.names())}.values())
#: Traced in both frameworks by `tests.cost.test_twins`, which compares their parameters, too.
TRACED = (
    *("lenet", "vgg11", "resnet18", "preact_resnet18", "se_resnet18", "resnext29", "googlenet", "squeezenet"),
    *("mobilenet_v2", "shufflenet_v2", "efficientnet_b0", "convnext_tiny", "gru", "vit_tiny", "bert", "gpt"),
)


#: Networks of many layers, which take longest; the sizes of all, as published, are compared quickly.
DEEP = (
    *("vgg13", "vgg16", "vgg19", "vit_small", "vit_base"),
    *("resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50"),
    *("densenet121", "densenet169", "densenet201", "googlenet", "inception_v3", "nasnet_mobile"),
    *("xception", "shufflenet_v2", "regnetx_400mf", "mobilenet_v3_large"),
    *("mnasnet", "efficientnet_b0", "convnext_tiny"),
)


def on_meta(name, **size):
    with torch.device("meta"):
        return zoo.build(name, "torch", **size)


def n_parameters(network):
    return sum(weight.numel() for weight in network.parameters() if weight.requires_grad)


def n_keras_parameters(model):
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_match_publications_on_imagenet(name):
    assert n_parameters(on_meta(name, input_shape=(3, 224, 224), n_classes=1000)) == PUBLISHED[name]


@pytest.mark.parametrize("name", CIFAR)
def test_parameters_match_the_cifar_versions(name):
    channels, expected = CIFAR[name]
    assert n_parameters(on_meta(name, input_shape=(channels, 32, 32))) == expected


def test_three_times_the_encoder_is_bert_base():
    network = on_meta("bert", input_shape=(512,), n_classes=2, width=3, depth=3, vocabulary=30_522)
    segments, classifier = 2 * 768, 2 * 768 + 2
    assert n_parameters(network) == 109_482_240 - segments + classifier


def test_three_times_the_decoder_is_gpt2():
    assert n_parameters(on_meta("gpt", input_shape=(1024,), width=3, depth=3, vocabulary=50_257)) == 124_439_808


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, PUBLISHED_GMACS))
def test_operations_match_publications(name):
    from torch.utils.flop_counter import FlopCounterMode

    network = on_meta(name, input_shape=(3, 224, 224), n_classes=1000)
    with FlopCounterMode(display=False) as counter:
        network(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() / 2e9 == pytest.approx(PUBLISHED_GMACS[name], rel=0.01)


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, zoo.names()))
def test_every_network_accepts_small_inputs(name):
    size = 28
    tokens = zoo.kind(name) == "tokens"
    network = on_meta(name, input_shape=(size,) if tokens else (3, size, size), n_classes=7, vocabulary=50)
    x = torch.zeros(2, size, dtype=torch.long) if tokens else torch.zeros(2, 3, size, size)
    expected = (2, size, 50) if name == "gpt" else (2, 7)
    assert network(x.to("meta")).shape == expected


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, FAMILIES))
def test_width_and_depth_change_the_size(name):
    narrow, plain = (n_parameters(on_meta(name, width=width)) for width in (0.5, 1))
    assert narrow < plain
    assert n_parameters(on_meta(name, depth=2)) > plain


@pytest.mark.parametrize("name", ["resnet18", "inception_v3", "gpt"])
def test_a_network_learns(name):
    network = zoo.build(name, "torch", width=0.25, depth=0.25, vocabulary=20)
    x = torch.randn(2, 3, 32, 32) if zoo.kind(name) == "image" else torch.randint(20, (2, 128))
    network(x).square().mean().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())


@pytest.mark.parametrize(
    "name", slow_where(DEEP.__contains__, sorted({*FAMILIES, "inception_v3", "mobilenet_v3_large"} - {*TRACED}))
)
def test_both_frameworks_have_the_same_parameters(name):
    pytest.importorskip("keras")
    size = {"width": 0.5, "depth": 0.5}
    model = zoo.build(name, "keras", **size)
    assert n_keras_parameters(model) == n_parameters(on_meta(name, **size))
    model.build(model.input_shape)
    assert model.output_shape[-1] == 10


@pytest.mark.parametrize(
    "name",
    slow_where(DEEP.__contains__, ["resnet18", "densenet121", "mobilenet_v3_small", "shufflenet_v2", "nasnet_mobile"]),
)
def test_the_same_weights_give_the_same_outputs_in_both_frameworks(name):
    # 33 pixels stay odd under halving, so that padding is symmetric in Keras, too.
    pytest.importorskip("keras")
    size = {"input_shape": (3, 33, 33), "width": 0.5, "depth": 0.25}
    network, model = zoo.build(name, "torch", **size).eval(), zoo.build(name, "keras", **size)
    copy_weights(network, model)
    x = np.random.default_rng(0).standard_normal((2, 3, 33, 33)).astype("float32")
    expected = network(torch.from_numpy(x)).detach().numpy()
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(model(x.transpose(0, 2, 3, 1), training=False), expected, rtol=1e-3, atol=1e-4)


def copy_weights(network, model):
    """Copy PyTorch's weights into Keras: both made the layers of each kind in one order."""
    modules = [dict(network.named_modules())[node.target] for node in network.graph.nodes if node.op == "call_module"]
    for kind in ("Conv2D", "DepthwiseConv2D", "BatchNormalization", "Dense"):
        layers = sorted((layer for layer in model.layers if type(layer).__name__ == kind), key=position)
        same = [module for module in modules if keras_kind(module) == kind]
        for module, layer in zip(same, layers, strict=True):
            arrays = weights_for_keras(module)
            layer.set_weights([array.reshape(old.shape) for array, old in zip(arrays, layer.weights, strict=True)])


def position(layer):
    """Keras numbers the layers of a kind: dense, dense_1, dense_2, ..."""
    number = re.search(r"_(\d+)$", layer.name)
    return int(number[1]) if number else 0


def keras_kind(module):
    if isinstance(module, torch.nn.Conv2d):
        return "DepthwiseConv2D" if 1 < module.groups == module.in_channels == module.out_channels else "Conv2D"
    return {torch.nn.BatchNorm2d: "BatchNormalization", torch.nn.Linear: "Dense"}.get(type(module))


def weights_for_keras(module):
    tensors = [module.weight, module.bias]
    if isinstance(module, torch.nn.BatchNorm2d):
        torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        tensors += [module.running_mean.normal_(), module.running_var.uniform_(0.5, 1.5)]
    arrays = [tensor.detach().numpy() for tensor in tensors if tensor is not None]
    order = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}[arrays[0].ndim]
    return [arrays[0].transpose(order), *arrays[1:]]


def test_families_share_a_block():
    families = {name: family_of(name) for name in zoo.names()}
    assert {name for name, family in families.items() if family == "vgg"} == {"vgg11", "vgg13", "vgg16", "vgg19"}
    resnets = {"preact_resnet18", "se_resnet18", "wide_resnet16_4", "wide_resnet50_2", "resnet18", "resnet152"}
    assert {families[name] for name in resnets} == {"resnet"}
    assert families["resnext29"] == families["resnext50"] != families["resnet50"]
    assert families["googlenet"] == families["inception_v3"]
    assert families["lstm"] == families["gru"]
    assert len(set(families.values())) == 20


def test_the_zoo_has_forty_networks_four_of_them_on_tokens():
    assert len(zoo.names()) >= 40
    assert [name for name in zoo.names() if zoo.kind(name) == "tokens"] == ["bert", "gpt", "lstm", "gru"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet51",), "name='resnet51' is not known. Did you mean 'resnet50'?"),
        (("resnet50", "tensorflow"), "framework='tensorflow' is not known"),
        (("resnet50", "torch", (32, 32)), r"resnet50 takes image: input_shape must be \(channels, height, width\)"),
        (("gpt", "torch", (3, 32, 32)), r"gpt takes tokens: input_shape must be \(length,\)"),
        (("resnet50", "torch", (3, 8, 8)), "resnet50 needs at least 16 x 16 pixels"),
        (("resnet50", "torch", (3, 32, 32), 0), "n_classes must be a whole number of at least 1; got 0"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        zoo.build(*arguments)


def test_unknown_names_are_rejected():
    with pytest.raises(InputError, match="Did you mean 'squeezenet'"):
        zoo.kind("squeeznet")


@pytest.mark.slow
def test_tensorflow_logs_are_suppressed_and_errors_are_not():
    pytest.importorskip("keras")
    code = "from benchmarks import zoo; import sys; zoo.build('lenet', 'keras'); print('ready', file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == "ready\n"
