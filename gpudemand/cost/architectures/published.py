"""Sizes of published models, by name, without a network."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.architectures.configuration import read_configuration
from gpudemand.cost.architectures.families import FAMILIES
from gpudemand.datasets.registry import bundled_path

_TEXT = ("name", "aliases", "model_type", "further", "source")
#: Columns that are no part of a configuration.
_ABOUT = ("aliases", "further", "published_parameters", "source")
#: What names of tuned variants end in; sizes are those of the base.
_VARIANT = re.compile(r"-(instruct|chat|base|hf|it|pt|bf16|uncased|mt)(?=-|$)|-v\d+(\.\d+)?$")


def published_architectures() -> pd.DataFrame:
    """Table of published architectures, one row each, by name.

    Returns
    -------
    DataFrame
        Keys of ``config.json``; ``further``, those that few models have; ``published_parameters``, NaN where no exact
        count is known; ``source``.

    Examples
    --------
    >>> published_architectures().loc["llama-3-8b", ["hidden_size", "num_hidden_layers"]].tolist()
    [4096.0, 32.0]
    """
    table = pd.read_csv(bundled_path("cost/architectures.csv"), dtype=dict.fromkeys(_TEXT, "str"))
    text = {name: table[name].fillna("").astype(STRING) for name in _TEXT}
    numbers = [name for name in table.columns if name not in (*_TEXT, "tie_word_embeddings")]
    return table.astype(dict.fromkeys(numbers, "float64")).assign(**text).set_index("name")


def published(name: str) -> Transformer:
    """Sizes of a published model.

    Parameters
    ----------
    name : str
        Such as ``"llama-3-8b"`` or ``"meta-llama/Meta-Llama-3-8B-Instruct"``: case, the owner and endings of tuned
        variants do not matter.

    Returns
    -------
    Transformer

    Raises
    ------
    InputError
        If the table has no such model.

    Examples
    --------
    >>> published("Qwen/Qwen2.5-7B-Instruct").n_parameters
    7615616512
    """
    known = _names()
    for key in _spellings(name):
        if key in known:
            return _architecture(known[key])
    raise InputError(
        f"{shorten(name)!r} is not among the published models that are known here.{nearest(_plain(name), _shown())} "
        "Give the path of its config.json, or its sizes as a dict."
    )


def architecture(config: Any) -> Transformer:
    """Sizes of a model by its published name, or from its configuration.

    Parameters
    ----------
    config : str, path-like, mapping, configuration object or Transformer
        Text that names an existing path, or ends in ``.json``, is a path; ``timm:`` stands before a name of timm.

    Returns
    -------
    Transformer

    Raises
    ------
    InputError
        As `published` and `read_configuration` do.

    Examples
    --------
    >>> architecture({"hidden": 512, "layers": 4, "heads": 8, "vocab": 1000, "ffn": 1408}).n_parameters
    13873664
    """
    if isinstance(config, str) and config.startswith("timm:"):
        return timm_architecture(config.removeprefix("timm:"))
    if isinstance(config, str):
        path = config.removeprefix("hf:")
        if not path.endswith(".json") and not (os.sep in path and Path(path).exists()):
            return published(config)
    return read_configuration(config)


def timm_architecture(name: str) -> Transformer:
    """Sizes of a vision transformer of timm, built without weights; a sample has as many tokens as it has patches.

    Patch embedding, class token and positions count as positions; the head as applied to each token, which adds about
    one per cent to the operations of 1,000 classes.

    Parameters
    ----------
    name : str

    Returns
    -------
    Transformer

    Raises
    ------
    InputError
        Without timm, for an unknown name, and for a network that is not such a stack of equal layers.
    """
    try:
        import timm
    except ImportError as error:
        raise InputError(f"timm:{name} needs timm: pip install timm, or give the sizes of the model.") from error
    if not timm.is_model(name):
        raise InputError(f"timm has no network {shorten(name)!r}; timm.list_models() lists them.")
    found = _vision_transformer(_without_weights(timm.create_model, name), name)
    if found is None:
        raise InputError(
            f"timm:{name} is no plain vision transformer; trace it with TrainingJob(timm.create_model({name!r}), ...)."
        )
    return found


def _without_weights(create: Any, name: str) -> Any:
    import torch

    try:
        with torch.device("meta"):
            return create(name)
    except (NotImplementedError, RuntimeError):  # some read a number while they are built
        return create(name)


def _vision_transformer(model: Any, name: str) -> Transformer | None:
    """Sizes of a module of timm; None if its layers have other parameters than those of a plain transformer."""
    try:
        first, traits = model.blocks[0], FAMILIES["gpt2"] | {"causal": False, "head_bias": True}
        sizes = {"hidden": model.embed_dim, "layers": len(model.blocks), "heads": first.attn.num_heads}
        sizes |= {"ffn": first.mlp.fc1.out_features, "vocab": model.num_classes}
    except (AttributeError, TypeError, IndexError, KeyError):
        return None
    if not sizes["vocab"]:
        return None
    plain = Transformer(**sizes, **traits, name=name)
    in_layers, total = (sum(one.numel() for one in part.parameters()) for part in (model.blocks, model))
    before, apart = divmod(total - plain.n_parameters, plain.hidden)
    equal = in_layers == plain.layers * plain.layer_parameters(sparse=False)
    return replace(plain, positions=before) if equal and before >= 0 and apart == 0 else None


def _spellings(name: str) -> list[str]:
    plain = _plain(name)
    return [_key(plain), _key(_VARIANT.sub("", plain)), _key(_VARIANT.sub("", _VARIANT.sub("", plain)))]


def _plain(name: str) -> str:
    return str(name).lower().removeprefix("hf:").rsplit("/", 1)[-1].replace("_", "-").replace(" ", "-")


def _key(name: str) -> str:
    return re.sub("[^a-z0-9.]", "", name)


@functools.cache
def _table() -> pd.DataFrame:
    return published_architectures()


def _shown() -> list[str]:
    return list(_table().index)


@functools.cache
def _names() -> dict[str, str]:
    pairs = zip(_table().index, _table()["aliases"], strict=True)
    return {
        _key(_plain(alias)): str(name) for name, found in pairs for alias in (name, *filter(None, found.split(";")))
    }


@functools.cache
def _architecture(name: str) -> Transformer:
    row: dict[str, Any] = {str(key): value for key, value in _table().loc[name].items() if key not in _ABOUT}
    config = {key: value for key, value in row.items() if isinstance(value, str) or not pd.isna(value)}
    for part in filter(None, _table().loc[name, "further"].split(";")):
        key, value = part.split("=")
        *outer, last = key.split(".")
        at = functools.reduce(lambda inner, one: inner.setdefault(one, {}), outer, config)
        at[last] = int(value) if value.lstrip("-").isdigit() else value
    return read_configuration({**config, "name": name})
