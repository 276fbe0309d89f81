"""Transformers by their configuration or published name."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._files import read_whole
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.transformer import Config, Transformer, plain, sizes_of
from gpudemand.cost.transformer_families import (
    TOWER_OF,
    connector_parameters,
    families,
    read_pairs,
    summed,
    vision_tower,
)
from gpudemand.datasets.devices import aliases, read_named


def read_configuration(source: Any) -> Transformer:
    """Sizes of a model from its configuration.

    `source`: as ``config.json`` of a model has it; of an object, what its ``to_dict()`` returns. With a mapping of
    sizes only (``hidden``, ``layers``, ``heads``, ``ffn``, ``vocab`` ...), a Llama-like decoder.

    >>> sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50257}
    >>> read_configuration({"model_type": "gpt2", **sizes, "n_positions": 1024}).n_parameters
    124439808
    """
    if isinstance(source, Transformer):
        return source
    config = _as_mapping(source)
    name = str(config.get("name") or Path(str(config.get("_name_or_path") or config.get("model_type") or "llama")).name)
    return replace(_with_tower(config, name), name=name)


def _with_tower(config: Config, name: str) -> Transformer:
    """A decoder and the tower of its images; what a configuration says of both at once may be said of the decoder."""
    kind, text, vision = (config.get(key) for key in ("model_type", "text_config", "vision_config"))
    if kind in ("clip", "siglip"):
        return _one_stack({**(text if isinstance(text, Mapping) else {}), **config})
    if isinstance(config.get("audio_config") or config.get("encoder_config"), Mapping):
        raise InputError(f"the sound that {name} reads is not known here; trace the module.")
    main = _one_stack(_of_text(config, text) if isinstance(text, Mapping) else config)
    if not isinstance(vision, Mapping):
        return main
    tower = vision_tower({"model_type": TOWER_OF.get(str(kind), str(kind)), **vision})
    return replace(main, parts=(*main.parts, tower), outer=main.outer + connector_parameters(config, tower, main))


def _of_text(config: Config, text: Config) -> Config:
    """The part of a configuration that is about text, with what only the whole says."""
    kind = config.get("model_type")
    alike = {"model_type": kind if kind in families() else "llama"}
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**alike, **tied, **text}


def _one_stack(config: Config) -> Transformer:
    """A model whose sizes are all in one mapping."""
    kind = str(config.get("model_type") or "llama")
    family = families().get(kind)
    if family is None:
        raise InputError(
            f"the model_type {shorten(kind)!r} is no transformer that is known here.{nearest(kind, families())} Give "
            "its sizes as of a 'llama' if it is alike, or trace the module."
        )
    sizes = sizes_of(config, family.traits) | {name: summed(config, keys) for name, keys in family.sizes.items()}
    sizes |= plain(config, sizes)
    return Transformer(**{**sizes, **family.variant(config, sizes)})


def _as_mapping(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"a configuration is a mapping, a path or a configuration; got {type(source).__name__}.")
    path = Path(str(source).removeprefix("hf:"))
    path = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(read_whole(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as the configuration of a model: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold one JSON object with the sizes of a model; got {type(found).__name__}.")
    return found


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
    return read_named("cost/architectures.csv", _TEXT, flags=["tie_word_embeddings"])


def published(name: str) -> Transformer:
    """Sizes of a published model.

    `name`: such as ``"llama-3-8b"`` or ``"meta-llama/Meta-Llama-3-8B-Instruct"``: case, the owner and endings of
    tuned variants do not matter.

    >>> published("Qwen/Qwen2.5-7B-Instruct").n_parameters
    7615616512
    """
    plain, known = _plain(name), _names()
    for spelling in (plain, base := _VARIANT.sub("", plain), _VARIANT.sub("", base)):
        if _key(spelling) in known:
            return _architecture(known[_key(spelling)])
    alike = [each for each in _table().index if _key(each).startswith(_key(plain))] if plain else []
    hint = f" Did you mean {' or '.join(alike[:6])}?" if alike else nearest(plain, _table().index)
    raise InputError(
        f"{shorten(name)!r} is not among the published models that are known here.{hint} Give the path of its "
        "config.json, its sizes, or its module (in the shell model.py:build_model)."
    )


def architecture(config: Any) -> Transformer:
    """Sizes of a model by its published name, or from its configuration.

    `config`: text that names an existing path, or ends in ``.json``, is a path.

    >>> architecture({"hidden": 512, "layers": 4, "heads": 8, "vocab": 1000, "ffn": 1408}).n_parameters
    13873664
    """
    if isinstance(config, str):
        path = config.removeprefix("hf:")
        if not path.endswith(".json") and not (os.sep in path and Path(path).exists()):
            return published(config)
    return read_configuration(config)


def _plain(name: str) -> str:
    return str(name).lower().removeprefix("hf:").rsplit("/", 1)[-1].replace("_", "-").replace(" ", "-")


def _key(name: str) -> str:
    return re.sub("[^a-z0-9.]", "", name)


@functools.cache
def _table() -> pd.DataFrame:
    return published_architectures()


@functools.cache
def _names() -> dict[str, str]:
    return {_key(_plain(alias)): name for alias, name in aliases(_table()).items()}


@functools.cache
def _architecture(name: str) -> Transformer:
    row: dict[str, Any] = {str(key): value for key, value in _table().loc[name].items() if key not in _ABOUT}
    config = {key: value for key, value in row.items() if isinstance(value, str) or not pd.isna(value)}
    for key, value in read_pairs(_table().loc[name, "further"]).items():
        *outer, last = key.split(".")
        functools.reduce(lambda inner, one: inner.setdefault(one, {}), outer, config)[last] = value
    return read_configuration({**config, "name": name})
