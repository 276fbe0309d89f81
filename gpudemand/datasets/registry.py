"""Bundled data, its registry with checksums, and downloads of public data."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pooch
import requests

from gpudemand._array import STRING
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.schema import TIME
from gpudemand.jobs.table import as_jobs

_FOLDERS = Path(__file__).resolve().parents
#: Data folder in a wheel, and in a checkout or an editable install.
_PLACES = (_FOLDERS[1] / "_data", _FOLDERS[2] / "data")


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
    format: str  #: for `gpudemand.jobs.read.read_jobs`, or "csv"
    about: str
    tz: str | None = None  #: time zone of the file
    origin: str | None = None  #: time of second 0 of the file


def data_folder() -> Path:
    """Return the folder of the bundled data."""
    for place in _PLACES:
        if (place / "registry.json").is_file():
            return place
    raise InputError("this installation of gpudemand lacks its data folder; install it again from its wheel.")


@functools.cache
def _registry() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((data_folder() / "registry.json").read_text(encoding="utf-8"))
    return content


def bundled_files() -> dict[str, BundledFile]:
    """Return every bundled file by its path inside the data folder."""
    return {row["path"]: BundledFile(**row) for row in _registry()["bundled"]}


def remote_files() -> dict[str, RemoteFile]:
    """Return every remote file by its name."""
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


def load_jobs_sample() -> pd.DataFrame:
    """Load the job log of a simulated cluster: 120 users in 8 groups, 270 days, with growth.

    Returns
    -------
    DataFrame
        A canonical job table (``attrs["kind"]`` is ``"synthetic"``) with the additional columns
        ``network``, ``batch_size``, ``precision``, ``epochs`` and ``samples`` of `make_cluster`.

    Examples
    --------
    >>> jobs = load_jobs_sample()
    >>> jobs.shape
    (98639, 17)
    >>> jobs[["user", "group", "submit", "gpus", "gpu_type", "network"]].head(3)
           user  group                    submit  gpus gpu_type        network
    0  user-098    ads 2025-10-06 00:04:22+00:00   1.0     A100   mobilenet_v2
    1  user-098    ads 2025-10-06 00:31:42+00:00   1.0     A100   mobilenet_v2
    2  user-037  video 2025-10-06 00:39:50+00:00   2.0     A100  convnext_tiny
    """
    stored = pd.read_parquet(bundled_path("sample/jobs.parquet"))
    stored = stored.astype(dict.fromkeys(("network", "precision"), STRING))
    return as_jobs(stored, kind="synthetic", source="bundled sample (gpudemand.datasets.make_cluster)")


def load_truth_sample() -> pd.DataFrame:
    """Load the ground truth of the bundled sample, one row a user.

    Returns
    -------
    DataFrame
        The second result of `make_cluster`.

    Examples
    --------
    >>> truth = load_truth_sample()
    >>> truth[["user", "group", "archetype", "typical_gpus"]].head(3)
           user     group archetype  typical_gpus
    0  user-001  language  sporadic           4.0
    1  user-002    speech   weekday           2.0
    2  user-003    vision   weekday           2.0
    >>> truth["archetype"].value_counts().head(3).to_dict()
    {'weekday': 32, 'sporadic': 30, 'burst': 22}
    """
    stored = pd.read_parquet(bundled_path("sample/truth.parquet"))
    dtypes = dict.fromkeys(("user", "group", "archetype", "network"), STRING)
    truth = stored.astype(dtypes | dict.fromkeys(("active_from", "active_to"), TIME))
    truth.attrs = dict(stored.attrs)
    return truth


#: Seconds until a server has answered, and between two parts of its answer.
TIMEOUT_S = (10, 60)


def cache_folder() -> Path:
    """Return the cache folder: ``$GPUDEMAND_DATA`` if set, else that of the operating system."""
    chosen = os.environ.get("GPUDEMAND_DATA")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("gpudemand"))


def fetch_file(name: str) -> Path:
    """Download a public file to the cache, if it is not there, and return its path.

    The SHA-256 is compared with the registry in either case. A file placed there by hand counts.

    Parameters
    ----------
    name : str
        A remote ``name`` of ``data/registry.json``.

    Returns
    -------
    Path
        A verified file in `cache_folder`.

    Raises
    ------
    InputError
        For an unknown name, if the download fails, or for a wrong checksum. No incomplete file remains.
    """
    row = remote_file(name)
    folder = cache_folder()
    _log_licence(row)
    try:
        download, checksum = pooch.HTTPDownloader(timeout=TIMEOUT_S), f"sha256:{row.sha256}"
        return Path(pooch.retrieve(row.url, checksum, fname=row.file_name, path=folder, downloader=download))
    except requests.RequestException as error:
        problem = f"could not be downloaded ({type(error).__name__})"
    except ValueError:
        problem = "arrived with a wrong checksum: the transfer was cut short or altered"
    except OSError as error:
        problem = f"could not be written to {folder} ({error.strerror or type(error).__name__})"
    raise InputError(
        f"{name} {problem}. Try again, or download {row.url} by hand and put it at {folder / row.file_name}; "
        "the environment variable GPUDEMAND_DATA names another folder."
    )


@functools.cache
def _log_licence(row: RemoteFile) -> None:
    """Log licence and citation, once per process."""
    pooch.get_logger().info("%s: %s. Licence: %s. Please cite: %s.", row.name, row.about, row.licence, row.citation)


def fetch_jobs(name: str) -> pd.DataFrame:
    """Fetch a public job log and read it as a canonical job table.

    Parameters
    ----------
    name : str
        A remote ``name`` of ``data/registry.json`` that is a job log: ``"philly_jobs"``, ``"philly_users"``,
        ``"venus_jobs"``, ``"venus_users"``, ``"pai_jobs"``, ``"openb_pods"``, ``"dlrm_services"``,
        ``"genai_requests"``, ``"kth_sp2"`` or ``"llnl_atlas"``.

    Returns
    -------
    DataFrame
        Columns of `gpudemand.jobs.schema.COLUMNS`; ``attrs["kind"]`` is ``"public trace"``. Times of an
        unknown zone are read as UTC, which preserves hours and days of the log; traces without a calendar get the
        ``origin`` of their row in the registry.

    Raises
    ------
    InputError
        As for `fetch_file`, and if `name` is no job log.
    """
    row = remote_file(name)
    if row.format == "csv":
        raise InputError(f"{name} is no job log; fetch_file({name!r}) returns the path of the file.")
    return read_jobs(fetch_file(name), format=row.format, tz=row.tz, origin=row.origin, kind="public trace")
