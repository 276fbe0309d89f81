"""Families of networks by their published names: groups for cross-validation, never a feature.

Rules instead of a list, so that names published later have a family too; fixed before any model was scored.
"""

from __future__ import annotations

import re

from gpudemand._validation import InputError

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
#: Variants with a first word of their own.
_VARIANTS = {
    "botnext": "botnet",
    "darknetaa": "darknet",
    "densenetblur": "densenet",
    "ecaresnetlight": "resnet",
    "fbnetc": "fbnet",
    "googlenet": "inception",
    "gru": "recurrent",
    "halonext": "halonet",
    "hieradet": "hiera",
    "lstm": "recurrent",
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
    """Family of a network of timm, torchvision or `gpudemand.cost.zoo`, by its name.

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
    return _VARIANTS.get(word[0], word[0])
