"""Standard networks by name, networks that a file builds, and families of names."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError, check_choice, check_number, nearest

#: Kinds of input, and their shapes unless another is asked for.
DEFAULT_SHAPES = {"image": (3, 32, 32), "tokens": (128,)}
#: Smallest image: fewer pixels a side vanish before the last stage.
MIN_SIDE = 16
#: Networks of `build` and the kind of their input.
NETWORKS = {
    **dict.fromkeys(("vgg11", "vgg16", "resnet18", "resnet50", "mobilenet_v2", "vit_tiny"), "image"),
    "bert": "tokens",
}


def run_file(path: Path) -> Any:
    """Run a Python file as a module, and with it what lies beside it."""
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}; give the path of the file that builds the network.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The file may import modules beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {type(error).__name__}: {error}.") from error
    finally:
        sys.path.pop(0)
    return module


def built(module: Any, name: str, where: str) -> Any:
    """Call the factory of a module, a function or class without parameters, or take its model; errors name `where`."""
    if not hasattr(module, name):
        public = [word for word in vars(module) if not word.startswith("_")]
        raise InputError(f"{where} has no {name!r}.{nearest(name, public)}")
    found = getattr(module, name)
    # Models are callable as well; functions and partials have code.
    if not isinstance(found, type) and not hasattr(found, "__code__") and not hasattr(found, "func"):
        return found
    try:
        return found()
    except Exception as error:
        raise InputError(f"{name}() of {where} failed: {type(error).__name__}: {error}.") from error


def build(name: str, input_shape: Sequence[int] | None = None, n_classes: int = 10, *, vocabulary: int = 1000) -> Any:
    """Build a standard network in PyTorch, untrained, for calibration and for examples.

    With 224 pixels and 1,000 classes they are the published networks (``bert`` is of size "mini" and has no segments);
    below 64 pixels the first two downsampling layers have stride 1, as in the usual CIFAR versions.

    Parameters
    ----------
    name : str
        One of `NETWORKS`.
    input_shape : tuple of int, optional
        ``(channels, height, width)`` of an image, or ``(length,)`` of a token sequence. Default: (3, 32, 32) or (128,).
    n_classes : int, default=10
        Outputs of the classifier, which are logits.
    vocabulary : int, default=1000
        Distinct tokens; ignored for images.

    Returns
    -------
    torch.nn.Module
        Under ``with torch.device("meta")`` it takes no memory.

    Raises
    ------
    InputError
        For an unknown name, or a size that the network cannot have.

    Examples
    --------
    >>> net = build("resnet18", input_shape=(3, 224, 224), n_classes=1000)
    >>> sum(weight.numel() for weight in net.parameters())
    11689512
    """
    shape = check_input_shape(input_shape, name, NETWORKS[check_choice("name", name, NETWORKS)])
    n_classes = int(check_number("n_classes", n_classes, 1, integer=True))
    vocabulary = int(check_number("vocabulary", vocabulary, 1, integer=True))
    try:
        from gpudemand.cost import _torch_networks as torch_networks
    except ImportError as error:
        raise ImportError("building networks needs PyTorch: pip install 'gpudemand[torch]'") from error
    return torch_networks.build(name, shape, n_classes, vocabulary)


def check_input_shape(input_shape: Sequence[int] | None, name: str, kind: str) -> tuple[int, ...]:
    """Check the shape of a sample of a network; by default that of `DEFAULT_SHAPES`."""
    shape = DEFAULT_SHAPES[kind] if input_shape is None else tuple(input_shape)
    if len(shape) != len(DEFAULT_SHAPES[kind]):
        layout = "(channels, height, width)" if kind == "image" else "(length,)"
        raise InputError(f"{name} takes {kind}: input_shape must be {layout} without the batch; got {shape}.")
    sizes = [check_number("each size in input_shape", size, 1, integer=True) for size in shape]
    if kind == "image" and min(sizes[1:]) < MIN_SIDE:
        raise InputError(f"{name} needs at least {MIN_SIDE} x {MIN_SIDE} pixels; got {shape}.")
    return tuple(int(size) for size in sizes)


#: Prefixes of the origin of the weights.
_ORIGINS = re.compile(r"^(?:tf|gluon|ssl|swsl|ig|legacy|tv|adv|ens|jx|test)_")
#: Prefixes of attention modules added to the blocks of another family.
_ATTENTION = re.compile(r"^(?:ese|eca|se|sk|gc|bat)_?(?=res|vov|bot|halo|mnas|mobile|dark|efficient)")
#: Names of several words whose first word does not identify the family.
_COMPOUNDS = {
    "cs3": "cspdarknet",
    "efficientnet_lite": "efficientnet",
    "halo2bot": "botnet",
    "haloregnet": "regnet",
    "inception_next": "inceptionnext",
    "inception_resnet": "inceptionresnet",
    "lambda_resnet": "lambdaresnet",
    "lamhalobot": "botnet",
    "preact_resnet": "resnet",
    "res2ne": "res2net",
    "sam2_hiera": "hiera",
    "tiny_vit": "tinyvit",
    "wide_resnet": "resnet",
}
#: Family -> first words of its variants.
_VARIANTS = {
    "botnet": "botnext",
    "darknet": "darknetaa",
    "densenet": "densenetblur",
    "fbnet": "fbnetc",
    "halonet": "halonext",
    "hiera": "hieradet",
    "inception": "googlenet",
    "maxvit": "maxxvit",
    "nasnet": "nasnetalarge",
    "recurrent": "gru lstm",
    "regnet": "regnetv regnetx regnety regnetz",
    "resnet": "ecaresnetlight resnetaa resnetblur resnetlight resnetrs",
    "resnext": "resnextaa",
}
_FAMILIES = {variant: family for family, variants in _VARIANTS.items() for variant in variants.split()}


def family_of(name: str) -> str:
    """Family of a network of timm, torchvision or measured here, by its name.

    The first word of the name, without its number, after prefixes of origin (``tf_``, ``gluon_``, ``ssl_``) and of
    attention modules (``se``, ``eca``, ``sk``) are removed.

    Parameters
    ----------
    name : str
        Such as ``"tf_efficientnetv2_s.in1k"``.

    Raises
    ------
    InputError
        If the name has no letters.

    Examples
    --------
    >>> [family_of(name) for name in ("seresnet50", "gluon_resnet18_v1b", "wide_resnet50_2", "resnetv2_50x1_bit")]
    ['resnet', 'resnet', 'resnet', 'resnet']
    >>> family_of("tf_efficientnetv2_s.in1k"), family_of("vit_base_patch16_224"), family_of("mobilenet_v2")
    ('efficientnet', 'vit', 'mobilenet')
    """
    bare = str(name).lower().rsplit("/", 1)[-1].split(".")[0].replace("-", "_")
    while _ORIGINS.match(bare):
        bare = _ORIGINS.sub("", bare)
    bare = _ATTENTION.sub("", bare)
    for start, family in _COMPOUNDS.items():
        if bare.startswith(start):
            return family
    word = re.match(r"[a-z]+?(?=v?\d|_|$)", bare)
    if word is None:
        raise InputError(f"network name {name!r} has no first word; a family is named by letters.")
    return _FAMILIES.get(word[0], word[0])
