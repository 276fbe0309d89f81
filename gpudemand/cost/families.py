"""Families of networks by their published names: for holding out what is alike, and never a feature.

Rules instead of a list, so that a name that comes out next year has a family too; fixed before any model was scored.
"""

from __future__ import annotations

import re

from gpudemand._validation import InputError

#: Who trained it, or where it was ported from.
_ORIGINS = re.compile(r"^(?:tf|gluon|ssl|swsl|ig|legacy|tv|adv|ens|jx|test)_")
#: Attention that is put into the blocks of another family.
_ATTENTION = re.compile(r"^(?:ese|eca|se|sk|gc|bat)_?(?=res|vov|bot|halo|mnas|mobile|dark|efficient)")
#: Names of several words, where the first one says too little.
_COMPOUNDS = {
    "cs3": "cspdarknet",
    "efficientnet_lite": "efficientnet",
    "halo2bot": "botnet",
    "haloregnet": "regnet",
    "inception_next": "inceptionnext",
    "inception_resnet": "inceptionresnet",
    "lambda_resnet": "lambdaresnet",
    "lamhalobot": "botnet",
    "res2ne": "res2net",
    "sam2_hiera": "hiera",
    "tiny_vit": "tinyvit",
    "wide_resnet": "resnet",
}
#: Variants of a block that have a first word of their own.
_VARIANTS = {
    "botnext": "botnet",
    "darknetaa": "darknet",
    "densenetblur": "densenet",
    "ecaresnetlight": "resnet",
    "fbnetc": "fbnet",
    "halonext": "halonet",
    "hieradet": "hiera",
    "maxxvit": "maxvit",
    "nasnetalarge": "nasnet",
    "regnetv": "regnet",
    "regnetx": "regnet",
    "regnety": "regnet",
    "regnetz": "regnet",
    "resnetaa": "resnet",
    "resnetblur": "resnet",
    "resnetlight": "resnet",
    "resnetrs": "resnet",
    "resnextaa": "resnext",
}


def family_of(name: str) -> str:
    """Return the family of a network of timm, torchvision or a model zoo like them.

    The first word of the name, without its number, after what tells its origin (``tf_``, ``gluon_``, ``ssl_``) and the
    attention added to its blocks (``se``, ``eca``, ``sk``) are taken away. For grouping only: a network's name says
    nothing to a predictor.

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
    return _VARIANTS.get(word[0], word[0])
