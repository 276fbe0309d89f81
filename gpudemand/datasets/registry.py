"""Registry of bundled and remote data files: checksums, licences, schemas."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._atomic import replace_file
from gpudemand._manifest import file_sha256
from gpudemand._validation import InputError, nearest, shorten

_HERE = Path(__file__).resolve()
#: Data folder in a wheel, and in a checkout or an editable install.
_PLACES = (_HERE.parents[1] / "_data", _HERE.parents[2] / "data")


@dataclass(frozen=True)
class BundledFile:
    """A bundled file."""

    path: str  #: inside the data folder, and name
    sha256: str
    bytes: int
    kind: str  #: see data/README.md
    licence: str
    made_by: str  #: command that reproduces it
    schema: Mapping[str, str]  #: column -> meaning
    about: str = ""


@dataclass(frozen=True)
class RemoteFile:
    """A public file for `gpudemand.datasets.fetch_file`."""

    name: str
    url: str  #: pinned to a commit
    file_name: str  #: in the cache folder
    sha256: str
    bytes: int | None
    licence: str
    citation: str
    format: str  #: for `gpudemand.jobs.readers.read_jobs`, or "csv"
    about: str
    tz: str | None = None  #: time zone of the file
    origin: str | None = None  #: time of second 0 of the file


def data_folder() -> Path:
    """Return the folder of the bundled data.

    Raises
    ------
    InputError
        If it is missing.

    Examples
    --------
    >>> (data_folder() / "registry.json").is_file()
    True
    """
    for place in _PLACES:
        if (place / "registry.json").is_file():
            return place
    raise InputError("this installation of gpudemand lacks its data folder; install it again from its wheel.")


@functools.cache
def _registry() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((data_folder() / "registry.json").read_text(encoding="utf-8"))
    return content


def bundled_files() -> dict[str, BundledFile]:
    """Return every bundled file by its path inside the data folder.

    Examples
    --------
    >>> bundled_files()["sample/jobs.parquet"].kind
    'synthetic'
    """
    return {row["path"]: BundledFile(**row) for row in _registry()["bundled"]}


def remote_files() -> dict[str, RemoteFile]:
    """Return every remote file by its name.

    Examples
    --------
    >>> remote_files()["philly_jobs"].file_name
    'philly_jobs.csv'
    """
    return {row["name"]: RemoteFile(**row) for row in _registry()["remote"]}


def bundled_path(name: str) -> Path:
    """Return the path of a bundled file.

    Raises
    ------
    InputError
        For an unknown name; the message suggests the nearest one.

    Examples
    --------
    >>> bundled_path("sample/jobs.parquet").name
    'jobs.parquet'
    >>> bundled_path("sample/job.parquet")
    Traceback (most recent call last):
    ...
    gpudemand._validation.InputError: there is no bundled file 'sample/job.parquet'. Did you mean 'sample/jobs.parquet'?
    """
    return data_folder() / _row(name, bundled_files(), "bundled file").path


def remote_file(name: str) -> RemoteFile:
    """Return the row of a remote file; raises `InputError` with a suggestion for an unknown name."""
    return _row(name, remote_files(), "data set")


def _row(name: str, rows: Mapping[str, Any], what: str) -> Any:
    if name not in rows:
        hint = nearest(name, rows) or f" Choose one of: {', '.join(sorted(rows))}."
        raise InputError(f"there is no {what} {shorten(name)!r}.{hint}")
    return rows[name]


def catalog() -> pd.DataFrame:
    """Return a table of all data sets, bundled and remote.

    Returns
    -------
    DataFrame
        Columns ``name``, ``where`` ("bundled" or "remote"), ``kind``, ``bytes``, ``licence``, ``about``.

    Examples
    --------
    >>> table = catalog().set_index("name")
    >>> table.loc["venus_jobs", ["where", "kind"]].tolist()
    ['remote', 'public trace']
    """
    here = [{"name": row.path, "where": "bundled", **asdict(row)} for row in bundled_files().values()]
    away = [{"where": "remote", "kind": "public trace", **asdict(row)} for row in remote_files().values()]
    return pd.DataFrame([*here, *away])[["name", "where", "kind", "bytes", "licence", "about"]]


def refresh_checksums(folder: Path, under: str = "") -> None:
    """Update checksum and size of bundled files in ``registry.json``.

    Parameters
    ----------
    folder : Path
        The data folder of a checkout.
    under : str
        Only files whose path begins with this.
    """
    place = folder / "registry.json"
    registry = json.loads(place.read_text(encoding="utf-8"))
    for row in (row for row in registry["bundled"] if row["path"].startswith(under)):
        path = folder / row["path"]
        row.update(sha256=file_sha256(path), bytes=path.stat().st_size)
    with replace_file(place) as new:
        new.write_text(json.dumps(registry, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
