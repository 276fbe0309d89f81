"""Devices: the table of published peaks, and devices of the user."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._files import read_whole, replace_file
from gpudemand._tables import aligned
from gpudemand._validation import InputError, check_choice, check_number, nearest, shorten
from gpudemand.datasets.registry import bundled_path

#: Precisions of training; ``fp16`` (also called ``amp``) and ``bf16`` are mixed precision.
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
#: Columns with a peak that matrix products of a precision can reach; the highest counts.
_PEAKS = {
    "fp64": ("fp64_tflops", "fp64_tensor_tflops"),
    "fp32": ("fp32_tflops", "fp32_tensor_tflops"),
    "tf32": ("tf32_tflops",),
    # Without tensor cores and without fast half precision, operands are halves and the arithmetic is single.
    "fp16": ("fp16_tensor_tflops", "fp16_tflops", "fp32_tflops"),
    "bf16": ("bf16_tensor_tflops",),
    # Of the linear layers of transformers only; the rest is in half precision.
    "fp8": ("fp8_tensor_tflops",),
    "fp4": ("fp4_tensor_tflops",),
}
_TERA, _GIGA = 1e12, 1e9
#: Peak over power: 500 of 700 W leave an H100 0.8 of its speed (torchtitan's against others' steps of the same jobs).
_POWER_EXPONENT = 2.0 / 3.0
#: PCI Express generation -> bandwidth of sixteen lanes, both directions together.
_PCIE_GB_S = {3: 32.0, 4: 64.0, 5: 128.0}
#: Share of the nominal memory usable by processes, where unknown; 0.976 on average over data/devices.csv.
_USABLE = 0.975
#: GPUs of a machine, and its network for each of them, bytes a second, where unknown: eight on 100 Gbit/s.
_NODE_GPUS, _NETWORK = 8.0, 1.5625e9


@dataclass(frozen=True, repr=False)
class Device:
    """A GPU or CPU; of a card with several GPUs, one of them.

    Parameters
    ----------
    name : str
        Name.
    memory_gib : float
        Nominal memory.
    bandwidth_gb_s : float
        Memory bandwidth, 1e9 bytes a second.
    fp32_tflops : float
        Peak of single precision outside tensor cores, 1e12 operations a second.
    usable_gib : float, optional
        Memory that the driver offers to processes.
    fp64_tflops, fp64_tensor_tflops, fp32_tensor_tflops, tf32_tflops, fp16_tflops, fp16_tensor_tflops, \
bf16_tensor_tflops, fp8_tensor_tflops, fp4_tensor_tflops, int8_tops : float, optional
        Dense peaks, with sums in single precision; NaN where there is no such unit.
    sms, cores : float, optional
        Streaming multiprocessors (compute units, CPU cores), and single-precision lanes in all of them.
    boost_clock_mhz, l2_mib, tdp_w : float, optional
        Clock, last-level cache, and power.
    interconnect : str, optional
        ``pcie``, ``nvlink``, ``nvlink bridge`` (works if one is plugged in), ``infinity fabric`` or ``none``.
    interconnect_gb_s : float, optional
        To all neighbours, both directions together.
    pcie_generation : float, optional
    node_gpus : float, default=8
        GPUs of a machine that the interconnect joins.
    network_gb_s : float, optional
        Network to other machines, a GPU and direction; where unknown an eighth of 100 Gbit/s.
    vendor, kind, die, architecture, compute_capability, source : str, optional
        ``kind`` is ``gpu`` or ``cpu``. Devices with one `die` are variants of one chip: hold them out together.
    year : float, optional

    Examples
    --------
    A device that is not in the table:

    >>> mine = Device("prototype", memory_gib=64, bandwidth_gb_s=2000, fp32_tflops=30, bf16_tensor_tflops=400)
    >>> mine.peak("bf16") / mine.peak("fp32")
    13.333333333333334
    >>> mine.precisions
    ('fp32', 'fp16', 'bf16')
    """

    name: str
    memory_gib: float
    bandwidth_gb_s: float
    fp32_tflops: float
    usable_gib: float = math.nan
    fp64_tflops: float = math.nan
    fp64_tensor_tflops: float = math.nan
    fp32_tensor_tflops: float = math.nan
    tf32_tflops: float = math.nan
    fp16_tflops: float = math.nan
    fp16_tensor_tflops: float = math.nan
    bf16_tensor_tflops: float = math.nan
    fp8_tensor_tflops: float = math.nan
    fp4_tensor_tflops: float = math.nan
    int8_tops: float = math.nan
    sms: float = math.nan
    cores: float = math.nan
    boost_clock_mhz: float = math.nan
    l2_mib: float = math.nan
    tdp_w: float = math.nan
    interconnect: str = "pcie"
    interconnect_gb_s: float = math.nan
    pcie_generation: float = math.nan
    node_gpus: float = _NODE_GPUS
    network_gb_s: float = math.nan
    vendor: str = ""
    kind: str = "gpu"
    die: str = ""
    architecture: str = ""
    compute_capability: str = ""
    year: float = math.nan
    source: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.node_gpus):
            object.__setattr__(self, "node_gpus", _NODE_GPUS)
        for name in ("memory_gib", "bandwidth_gb_s", "fp32_tflops"):
            check_number(name, getattr(self, name), 0, open_low=True)
        check_choice("kind", self.kind, ("gpu", "cpu"))

    def peak(self, precision: str = "fp32") -> float:
        """Peak of matrix products in a precision, operations a second.

        Parameters
        ----------
        precision : {"fp64", "fp32", "tf32", "fp16", "amp", "bf16", "fp8", "fp4"}
            ``fp16`` and ``bf16`` are mixed precision with sums in single precision.

        Raises
        ------
        InputError
            If the device lacks it.

        Examples
        --------
        >>> volta = Device("Volta", memory_gib=16, bandwidth_gb_s=897, fp32_tflops=15.7, fp16_tensor_tflops=125.3)
        >>> volta.peak("amp") / 1e12
        125.3
        >>> volta.peak("tf32")
        Traceback (most recent call last):
        ...
        gpudemand._validation.InputError: Volta cannot train in 'tf32'; it can in fp32, fp16.
        """
        name = check_choice("precision", "fp16" if precision == "amp" else precision, _PEAKS)
        peak = self._peak(name)
        if math.isnan(peak):
            narrow = [name for name in ("fp8", "fp4") if not math.isnan(self._peak(name))]
            more = f", and jobs from a configuration in {', '.join(narrow)}" if narrow else ""
            known = ", ".join(self.precisions)
            raise InputError(f"{self.name} cannot train in {precision!r}; it can in {known}{more}.")
        return peak

    def limited_to(self, power_w: float) -> Device:
        """The device held to a lower power, at which its clock and with it all peaks of arithmetic are lower.

        An H100 that draws 500 W instead of 700 W reaches 0.8 of its peaks.

        Raises
        ------
        InputError
            Where the power of the device is not known, or lower.

        Examples
        --------
        >>> full = device("H100")
        >>> round(full.limited_to(500).peak("bf16") / full.peak("bf16"), 2)
        0.8
        """
        check_number("power_w", power_w, 0, open_low=True)
        if not power_w <= self.tdp_w:
            raise InputError(f"{self.name} draws {self.tdp_w:g} W; a limit of {power_w:g} W is none.")
        share = (power_w / self.tdp_w) ** _POWER_EXPONENT
        peaks = {one.name: share * getattr(self, one.name) for one in fields(self) if "tflops" in one.name}
        slower = {"int8_tops": share * self.int8_tops, "boost_clock_mhz": share * self.boost_clock_mhz}
        name = f"{self.name} at {power_w:g} W"
        return replace(self, name=name, tdp_w=power_w, **peaks, **slower)

    def _peak(self, precision: str) -> float:
        if precision == "fp16" and self.kind == "cpu":
            return math.nan
        names = (
            ("bf16_tensor_tflops", "fp32_tflops") if (precision, self.kind) == ("bf16", "cpu") else _PEAKS[precision]
        )
        return float(np.fmax.reduce([getattr(self, name) for name in names])) * _TERA

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those of `PRECISIONS` that the device supports."""
        return tuple(name for name in PRECISIONS if not math.isnan(self._peak(name)))

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth, bytes a second."""
        return self.bandwidth_gb_s * _GIGA

    @property
    def interconnect_bandwidth(self) -> float:
        """Bandwidth to neighbours, both directions together, bytes a second; PCIe without another interconnect."""
        return self.pcie_bandwidth if math.isnan(self.interconnect_gb_s) else self.interconnect_gb_s * _GIGA

    @property
    def pcie_bandwidth(self) -> float:
        """Bandwidth of sixteen PCIe lanes, both directions together, bytes a second; NaN if unknown."""
        return _PCIE_GB_S.get(self.pcie_generation, math.nan) * _GIGA  # type: ignore[call-overload]

    @property
    def network_bandwidth(self) -> float:
        """Bandwidth of the network to other machines, a GPU and direction, bytes a second."""
        return _NETWORK if math.isnan(self.network_gb_s) else self.network_gb_s * _GIGA

    @property
    def usable_memory_gib(self) -> float:
        """Memory that the driver offers to processes; estimated from the nominal memory where unknown."""
        return self.memory_gib * _USABLE if math.isnan(self.usable_gib) else self.usable_gib

    def __repr__(self) -> str:
        peaks = ", ".join(f"{name} {self._peak(name) / _TERA:.4g}" for name in self.precisions)
        return f"Device({self.name!r}: {self.memory_gib:g} GiB, {self.bandwidth_gb_s:g} GB/s, TFLOP/s: {peaks})"


_TEXT = ("name", "aliases", "vendor", "kind", "die", "architecture", "interconnect", "compute_capability", "source")
_LIMITED = re.compile(r"(.+?)\s+at\s+(\d+(?:\.\d+)?)\s*w", re.IGNORECASE)
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

    ``"H100 at 500 W"`` is one with a power limit. Case, spaces, hyphens and brands do not matter. The bare name of a
    family is its most common member: ``"A100"`` is the SXM4 board with 40 GB, ``"H100"`` the SXM5 one, ``"V100"`` the
    SXM2 one with 16 GB.

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
    if limit := _LIMITED.fullmatch(name):
        return device(limit[1]).limited_to(float(limit[2]))
    known = _names()
    if _key(name) in known:
        return _device(known[_key(name)])
    saved = _file(name)
    if saved.is_file():
        return _saved(saved)
    # Bare numbers ("3090") resemble too many names.
    hint = nearest(name, [alias for alias in aliases(_table()) if not alias.isdigit()])
    raise InputError(
        f"device {shorten(name)!r} is not in the table.{hint} `gpudemand devices` lists it; add "
        "one with save_device (in the shell a row in data/devices.csv)."
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
        return Device(**json.loads(read_whole(file)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"the saved device {str(file)!r} cannot be read ({error}); remove or repair it.") from error


def _file(name: str) -> Path:
    """File of a saved device."""
    folder = os.environ.get(_FOLDER)
    home = Path(folder) if folder else Path.home() / ".config" / "gpudemand" / "devices"
    return home / f"{_key(name)}.json"


def format_devices() -> str:
    """Format the table for a terminal; TFLOP/s are those of matrix products, ``-`` where unsupported.

    >>> print(format_devices().splitlines()[0])
    device   die   year   GiB   GB/s   fp32   tf32   fp16   bf16
    """
    rows = [
        [item.name, item.die, f"{item.year:.0f}", f"{item.memory_gib:g}", f"{item.bandwidth_gb_s:.0f}"]
        + ["-" if math.isnan(peak := item._peak(each)) else f"{peak / 1e12:.4g}" for each in PRECISIONS]
        for item in map(device, _table().index)
    ]
    return aligned(pd.DataFrame(rows, columns=["device", "die", "year", "GiB", "GB/s", *PRECISIONS]))


def read_named(path: str, text: Sequence[str], flags: Sequence[str] = ()) -> pd.DataFrame:
    """A bundled table by its column ``name``; what is neither text nor a flag is a number."""
    table = pd.read_csv(bundled_path(path), dtype=dict.fromkeys(text, "str"))
    numbers = table.columns.difference([*text, *flags])
    found = {name: table[name].fillna("").astype(STRING) for name in text}
    return table.astype(dict.fromkeys(numbers, "float64")).assign(**found).set_index("name")


def aliases(table: pd.DataFrame) -> dict[str, str]:
    """Name or alias -> name."""
    pairs = zip(table.index, table["aliases"], strict=True)
    return {alias: name for name, others in pairs for alias in (name, *filter(None, others.split(";")))}


@functools.cache
def _table() -> pd.DataFrame:
    return read_named("devices.csv", _TEXT)


@functools.cache
def _names() -> dict[str, str]:
    return {_key(alias): name for alias, name in aliases(_table()).items()}


@functools.cache
def _device(name: str) -> Device:
    row: dict[str, Any] = {str(key): value for key, value in _table().loc[name].items()}
    return Device(name=name, **{field.name: row[field.name] for field in fields(Device) if field.name != "name"})


def _key(name: str) -> str:
    # TensorFlow appends the compute capability to the name.
    bare = re.sub(r"compute ?capability.*", "", name.lower())
    return _BRANDS.sub("", re.sub("[^a-z0-9]", "", bare))
