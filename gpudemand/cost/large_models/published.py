"""Sizes of published models, by name, without a network."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.large_models.architecture import Transformer
from gpudemand.cost.large_models.configuration import read_configuration
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
        Text that names an existing path, or ends in ``.json``, is a path.

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
    if isinstance(config, str):
        path = config.removeprefix("hf:")
        if not path.endswith(".json") and not (os.sep in path and Path(path).exists()):
            return published(config)
    return read_configuration(config)


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
    further = dict(part.split("=") for part in _table().loc[name, "further"].split(";") if part)
    config = {key: value for key, value in row.items() if isinstance(value, str) or not pd.isna(value)}
    return read_configuration({**config, **{key: int(value) for key, value in further.items()}, "name": name})
