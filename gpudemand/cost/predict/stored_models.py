"""Folder of fitted models: an ``.npz`` file for each kind of device and target, and a manifest with their checksums."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpudemand._atomic import replace_folder
from gpudemand._manifest import read_manifest
from gpudemand._validation import InputError

#: File of a stored model that lists the others.
MANIFEST = "model.json"
#: Version of the stored files; 3 lists their checksums, 4 has step times by kind of kernel, 5 jobs that
#: devices were calibrated with, 6 caches as work that is saved.
_FORMAT = 6
Models = dict[tuple[str, str], Any]
#: What numpy and zipfile raise of a file that is none of theirs.
_DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def save_models(folder: str | os.PathLike[str], models: Models, about: Mapping[str, Any]) -> None:
    """Write models and a manifest; an older folder is replaced as a whole.

    Parameters
    ----------
    folder : path-like
        Created if missing.
    models : dict of (str, str) to estimator
        Kind of device and target -> estimator with a method `to_arrays`.
    about : mapping
        Further entries of the manifest; ``fitted_on`` has a key for each kind of device.

    Raises
    ------
    InputError
        If the folder holds anything but saved models.
    """
    with replace_folder(folder, MANIFEST, {"format": _FORMAT, **about}) as new:
        for (kind, target), model in models.items():
            np.savez_compressed(new / _file(kind, target), **model.to_arrays())


def load_models(folder: Path, targets: Mapping[str, Any]) -> tuple[dict[str, Any], Models]:
    """Read what `save_models` wrote.

    Parameters
    ----------
    folder : Path
    targets : mapping of str to class
        Target -> class of estimators with a method `from_arrays`.

    Returns
    -------
    manifest : dict
    models : dict of (str, str) to estimator

    Raises
    ------
    InputError
        If there is no manifest, its format is not the one that this version writes, or a file is missing, damaged or
        edited, or holds other arrays than such a model has.
    """
    if not (folder / MANIFEST).is_file():
        raise InputError(f"there is no {MANIFEST} in {str(folder)!r}; give the folder that CostModel.save wrote.")
    manifest = read_manifest(folder, MANIFEST, _FORMAT)
    fitted_on = manifest.get("fitted_on")
    kinds = fitted_on if isinstance(fitted_on, dict) else {}
    files = {(kind, target): _file(kind, target) for kind in kinds for target in targets}
    about = all(isinstance(data, dict) and isinstance(data.get("jobs"), int) for data in kinds.values())
    about = about and isinstance(manifest.get("random_state"), int | None)
    if not kinds or not about or set(files.values()) != set(manifest["files"]):
        raise InputError(f"{MANIFEST} and the files beside it disagree; copy or save the folder again.")
    return manifest, {key: _restore(targets[key[1]], folder / file) for key, file in files.items()}


def _file(kind: str, target: str) -> str:
    return f"{kind}_{target}.npz"


def _restore(estimator: Any, path: Path) -> Any:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return estimator.from_arrays(arrays)
    except _DAMAGED as error:
        raise InputError(f"{path.name} does not hold a model that this version knows: {error}") from error
