"""Table of GPUs and CPUs with the figures of their datasheets, and devices of one's own beside it."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._atomic import replace_file
from gpudemand._printing import aligned
from gpudemand._typing import STRING
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.cost.hardware import PRECISIONS, Device
from gpudemand.datasets.registry import bundled_path

_TEXT = ("name", "aliases", "vendor", "kind", "die", "architecture", "interconnect", "compute_capability", "source")
_BRANDS = re.compile("nvidia|geforce|tesla|instinct|amd")
#: Environment variable with the folder of saved devices.
_FOLDER = "GPUDEMAND_DEVICES"


def devices() -> pd.DataFrame:
    """Return the table of devices, one row each, by name.

    Returns
    -------
    DataFrame
        The fields of `Device` and ``aliases`` (semicolon between them); numbers are NaN where there is no such unit.

    Examples
    --------
    >>> devices().loc[["Tesla T4", "H200 SXM"], ["memory_gib", "bandwidth_gb_s", "fp32_tflops", "die"]]
              memory_gib  bandwidth_gb_s  fp32_tflops    die
    name
    Tesla T4        16.0           320.0         8.14  TU104
    H200 SXM       141.0          4800.0        66.90  GH100
    """
    return _table().copy()


def device(name: str | Device) -> Device:
    """Look a device up by its name, by an alias of frameworks, drivers and public measurements, or among saved ones.

    Case, spaces, hyphens and brands do not matter. The bare name of a family is its most common
    member: ``"A100"`` is the SXM4 board with 40 GB, ``"H100"`` the SXM5 one, ``"V100"`` the SXM2 one with 16 GB.

    Parameters
    ----------
    name : str or Device
        A `Device` is returned as it is.

    Raises
    ------
    InputError
        For a device that is neither in the table nor saved.

    Examples
    --------
    >>> device("NVIDIA A100-SXM4-80GB").name, device("1080ti").die
    ('A100 SXM4 80GB', 'GP102')
    >>> device("H200")
    Device('H200 SXM': 141 GiB, 4800 GB/s, TFLOP/s: fp32 66.9, tf32 494.7, fp16 989.4, bf16 989.4)
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise InputError(f"device must be a name or a Device; got {type(name).__name__}.")
    known = _names()
    if _key(name) in known:
        return _device(known[_key(name)])
    saved = _file(name)
    if saved.is_file():
        return _saved(saved)
    # Bare numbers ("3090") resemble too many names.
    hint = nearest(name, [alias for alias in _aliases() if not alias.isdigit()])
    raise InputError(
        f"device {shorten(name)!r} is not in the table.{hint} `gpudemand devices` lists it; add a row to "
        "data/devices.csv or pass a Device, which save_device keeps under its name."
    )


def save_device(own: Device) -> Path:
    """Save a device of one's own, so that `device` finds it by its name in any later process.

    Parameters
    ----------
    own : Device
        Its name must not be one of the table.

    Returns
    -------
    Path
        A JSON file in the folder that the environment variable ``GPUDEMAND_DEVICES`` names, by default
        ``~/.config/gpudemand/devices``.

    Raises
    ------
    InputError
        If the table has a device of that name.

    Examples
    --------
    >>> save_device(Device("H200", memory_gib=64, bandwidth_gb_s=2000, fp32_tflops=30))
    Traceback (most recent call last):
    ...
    gpudemand._validation.InputError: the table has a 'H200' already; give the device another name.
    """
    if _key(own.name) in _names():
        raise InputError(f"the table has a {own.name!r} already; give the device another name.")
    path = _file(own.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as new:
        new.write_text(json.dumps(asdict(own), indent=1), encoding="utf-8")
    return path


def _saved(file: Path) -> Device:
    try:
        return Device(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"the saved device {str(file)!r} cannot be read ({error}); remove or repair it.") from error


def _file(name: str) -> Path:
    """File of a saved device."""
    folder = os.environ.get(_FOLDER)
    home = Path(folder) if folder else Path.home() / ".config" / "gpudemand" / "devices"
    return home / f"{_key(name)}.json"


def format_devices() -> str:
    """Format the table for a terminal; TFLOP/s are those of matrix products, ``-`` where unsupported.

    Examples
    --------
    >>> print(format_devices().splitlines()[0])
    device   die   year   GiB   GB/s   fp32   tf32   fp16   bf16
    """
    rows = [
        [item.name, item.die, f"{item.year:.0f}", f"{item.memory_gib:g}", f"{item.bandwidth_gb_s:.0f}"]
        + [_cell(item._peak(precision) / 1e12) for precision in PRECISIONS]
        for item in map(device, _table().index)
    ]
    return aligned(pd.DataFrame(rows, columns=["device", "die", "year", "GiB", "GB/s", *PRECISIONS]))


def _cell(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.4g}"


@functools.cache
def _table() -> pd.DataFrame:
    table = pd.read_csv(bundled_path("devices.csv"), dtype=dict.fromkeys(_TEXT, "str"), keep_default_na=True)
    numbers = [name for name in table.columns if name not in _TEXT]
    text = {name: table[name].fillna("").astype(STRING) for name in _TEXT}
    return table.astype(dict.fromkeys(numbers, "float64")).assign(**text).set_index("name")


@functools.cache
def _aliases() -> dict[str, str]:
    """Name or alias -> name."""
    table = _table()
    pairs = zip(table.index, table["aliases"], strict=True)
    return {alias: name for name, aliases in pairs for alias in (name, *filter(None, aliases.split(";")))}


@functools.cache
def _names() -> dict[str, str]:
    return {_key(alias): name for alias, name in _aliases().items()}


@functools.cache
def _device(name: str) -> Device:
    row: dict[str, Any] = {str(key): value for key, value in _table().loc[name].items()}
    return Device(name=name, **{field.name: row[field.name] for field in fields(Device) if field.name != "name"})


def _key(name: str) -> str:
    # TensorFlow appends the compute capability to the name.
    bare = re.sub(r"compute ?capability.*", "", name.lower())
    return _BRANDS.sub("", re.sub("[^a-z0-9]", "", bare))
