"""A `Transformer` from a model's configuration: a dictionary, a ``config.json``, or a configuration object."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.architectures.decoders import DECODERS
from gpudemand.cost.architectures.encoder_decoders import ENCODER_DECODERS
from gpudemand.cost.architectures.families import ALIKE, FAMILIES
from gpudemand.cost.architectures.hybrids import HYBRIDS
from gpudemand.cost.architectures.reading import Config, plain, sizes_of
from gpudemand.cost.architectures.towers import TOWER_OF, TOWERS, connector_parameters, vision_tower

#: Sizes that published configurations leave out where they are those of the class in transformers.
_DEFAULTS = {
    "gemma3_text": {"heads": 8, "kv_heads": 4, "head_dim": 256, "vocab": 262208},
    "llama4_text": {"active_experts": 1},
}
_VARIANTS = {**DECODERS, **HYBRIDS, **ENCODER_DECODERS, **TOWERS}


def read_configuration(source: Any) -> Transformer:
    """Sizes of a model from its configuration.

    Parameters
    ----------
    source : Transformer, mapping, path-like or configuration object
        As ``config.json`` of a model has it; of an object, what its ``to_dict()`` returns. With a mapping of sizes
        only (``hidden``, ``layers``, ``heads``, ``ffn``, ``vocab`` ...), a Llama-like decoder.

    Returns
    -------
    Transformer

    Raises
    ------
    InputError
        For a file that is no such configuration, a missing size, or a kind of model that is no plain transformer.

    Examples
    --------
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
    if kind in TOWERS:
        return _one_stack({**(text if isinstance(text, Mapping) else {}), **config})
    if isinstance(config.get("audio_config") or config.get("encoder_config"), Mapping):
        raise InputError(f"the sound that {name} reads is not known here; trace the module with TrainingJob.")
    main = _one_stack(_of_text(config, text) if isinstance(text, Mapping) else config)
    if not isinstance(vision, Mapping):
        return main
    tower = vision_tower({"model_type": TOWER_OF.get(str(kind), str(kind)), **vision})
    return replace(main, parts=(*main.parts, tower), outer=main.outer + connector_parameters(config, tower, main))


def _of_text(config: Config, text: Config) -> Config:
    """The part of a configuration that is about text, with what only the whole says."""
    kind = config.get("model_type")
    alike = {"model_type": kind if kind in {**FAMILIES, **ALIKE} else "llama"}
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return {**alike, **tied, **text}


def _one_stack(config: Config) -> Transformer:
    """A model whose sizes are all in one mapping."""
    kind = str(config.get("model_type") or "llama")
    family = ALIKE.get(kind, kind)
    traits = FAMILIES.get(family)
    if traits is None:
        raise InputError(
            f"model_type={shorten(kind)!r} is not a transformer that is known here.{nearest(kind, FAMILIES)} Give its "
            "sizes with model_type='llama' if it is alike, or trace the module with TrainingJob."
        )
    sizes = sizes_of(config, {**traits, **_DEFAULTS.get(family, {})})
    return Transformer(**{**traits, **sizes, **_VARIANTS.get(family, plain)(config, sizes)})


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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as the configuration of a model: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold one JSON object with the sizes of a model; got {type(found).__name__}.")
    return found
