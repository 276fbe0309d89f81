"""Public data sets by their address: downloaded once, checked against a checksum, kept."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pandas as pd
import pooch
import requests

from gpudemand._validation import InputError, check_number
from gpudemand.datasets.registry import RemoteFile, remote_file
from gpudemand.jobs.readers import read_jobs

#: Prices that lost their thousands digit in the published copy of CDNOW: row number -> price, US dollars.
_CDNOW_REPAIRS = {27632: 1286.01, 45314: 1028.51, 56479: 1119.68}


def cache_folder() -> Path:
    """Return where downloads are kept: ``$GPUDEMAND_DATA`` if set, else the cache folder of the operating system."""
    chosen = os.environ.get("GPUDEMAND_DATA")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("gpudemand"))


def fetch_file(name: str) -> Path:
    """Download a public file, unless it is there already, and return where it lies.

    Its bytes are compared with the checksum of the registry in either case. A file put there by hand counts.

    Parameters
    ----------
    name : str
        See ``catalog()`` for all names, with their licences.

    Returns
    -------
    Path
        A complete, checked file in `cache_folder`.

    Raises
    ------
    InputError
        For an unknown name, when the download fails, or when what arrives is not the file that was checked. Nothing
        incomplete is left behind.
    """
    row = remote_file(name)
    folder = cache_folder()
    _mention(row)
    try:
        return Path(pooch.retrieve(row.url, f"sha256:{row.sha256}", fname=row.file_name, path=folder))
    except requests.RequestException as error:
        problem = f"could not be downloaded ({type(error).__name__})"
    except ValueError:
        problem = "arrived with a wrong checksum: the transfer was cut short or altered"
    except OSError as error:
        problem = f"could not be kept in {folder} ({error.strerror or type(error).__name__})"
    raise InputError(
        f"{name} {problem}. Try again, or download {row.url} by hand and put it at {folder / row.file_name}; "
        "the environment variable GPUDEMAND_DATA names another folder."
    )


@functools.cache
def _mention(row: RemoteFile) -> None:
    """Say, once a process and where downloads are announced, whose data this is."""
    pooch.get_logger().info("%s: %s. Licence: %s. Please cite: %s.", row.name, row.about, row.licence, row.citation)


def fetch_jobs(name: str) -> pd.DataFrame:
    """Fetch a public job log and read it as a canonical job table.

    Parameters
    ----------
    name : str
        One of the names below, or any other remote file of `catalog` that is a job log.

    Returns
    -------
    DataFrame
        Columns of `gpudemand.jobs.table.COLUMNS`; ``attrs["kind"]`` is ``"public trace"``. A clock whose zone is not
        known is read as UTC, so that hours and days are those of the log.

    Raises
    ------
    InputError
        See `fetch_file`; also when `name` is no job log.
    """
    row = remote_file(name)
    if row.format == "csv":
        raise InputError(f"{name} is no job log; fetch_file({name!r}) returns the path of the file.")
    return read_jobs(fetch_file(name), format=row.format, tz=row.tz, origin=row.origin, kind="public trace")


def fetch_philly_jobs() -> pd.DataFrame:
    """Fetch 82,247 GPU jobs of 15 virtual clusters of Microsoft's Philly, September to December 2017.

    No users (the virtual cluster is the group), no start times: jobs count from their submission. Trace CC BY 4.0,
    repository petuum/adaptdl Apache-2.0. Cite Jeon et al., USENIX ATC 2019.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("philly_jobs")


def fetch_philly_users() -> pd.DataFrame:
    """Fetch 15,000 Philly jobs of 136 users, 58 days of 2017, most of them in the last two weeks.

    Trace CC BY 4.0, extract without a licence. Cite Jeon et al., USENIX ATC 2019 and Soundar Raj et al., JSSPP 2024.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("philly_users")


def fetch_venus_jobs() -> pd.DataFrame:
    """Fetch 125,303 GPU jobs of SenseTime's cluster Venus, March to September 2020.

    Run times are cut at 48 hours (2,379 jobs), no users, no start times. Trace CC BY 4.0, conversion without a
    licence. Cite Hu et al., SC 2021.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("venus_jobs")


def fetch_venus_users() -> pd.DataFrame:
    """Fetch 15,000 jobs of 106 users of SenseTime's cluster Venus, 20 days from 2020-05-27.

    Trace CC BY 4.0, extract without a licence. Cite Hu et al., SC 2021 and Soundar Raj et al., JSSPP 2024.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("venus_users")


def fetch_pai_jobs() -> pd.DataFrame:
    """Fetch 60,105 completed GPU tasks of Alibaba PAI 2020: a random twelfth, 64 days.

    The trace has no calendar: its first second is set to 2020-07-01. Trace CC BY 4.0, conversion without a
    licence. Cite Weng et al., NSDI 2022.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("pai_jobs")


def fetch_openb() -> pd.DataFrame:
    """Fetch the pods of an Alibaba Kubernetes cluster with shared GPUs (OpenB, 2023).

    The trace has no calendar: its first second is set to 2023-01-02. No licence is stated; research or study. Cite
    Weng et al., USENIX ATC 2023. ``fetch_file("openb_nodes")`` has the nodes.

    Returns
    -------
    DataFrame
        See `fetch_jobs`.
    """
    return fetch_jobs("openb_pods")


def fetch_philly_nodes() -> pd.DataFrame:
    """Fetch the number of active GPU nodes of Philly, minute by minute, 2017-10-03 to 2017-12-15.

    599 minutes of 2017-10-25 are missing, and zeros on 2017-10-26, 12-03 and 12-06 are outages of the recording.
    Repository MIT, trace CC BY 4.0. Cite Hu et al., SC 2021 and Jeon et al., USENIX ATC 2019.

    Returns
    -------
    DataFrame
        ``unique_id`` ("philly"), ``ds`` (trace clock, its zone is unknown) and ``y`` (nodes with a GPU in use).
    """
    raw = pd.read_csv(fetch_file("philly_nodes"))
    return _long("philly", pd.to_datetime(raw["time"]), raw["active"])


def fetch_spot_hourly(origin: str | pd.Timestamp = "2024-01-01") -> pd.DataFrame:
    """Fetch the GPUs requested from six GPU models at Alibaba, hour by hour, for 183 days.

    The trace has no calendar. The last 24 hours, in which it runs empty, are left out. Tables MIT, trace without a
    licence (research or study). Cite Duan et al., ASPLOS 2026.

    Parameters
    ----------
    origin : str or Timestamp
        The date that hour 0 is given; an arbitrary one, so do not read weekdays from it.

    Returns
    -------
    DataFrame
        ``unique_id`` (GPU model), ``ds`` and ``y`` (requested GPUs in use).
    """
    raw = pd.read_csv(fetch_file("spot_hourly"))
    raw = raw[raw["hour"] <= raw["hour"].max() - 24]
    ds = pd.Timestamp(origin) + pd.to_timedelta(raw["hour"], unit="h")
    return pd.concat([_long(name, ds, raw[name]) for name in sorted(raw.columns.drop("hour"))], ignore_index=True)


def fetch_cdnow(n_customers: int | None = None) -> pd.DataFrame:
    """Fetch what the customers of an online shop spent per day, 1997-01-01 to 1998-06-30.

    The public set of the clusterwise-regression paper: 69,659 purchases of 23,570 customers, who all bought first in
    early 1997. Three prices that lost a digit in the published copy are restored. No licence is stated; a public
    teaching and research set. Cite Fader and Hardie, Interfaces 31(3), 2001.

    Parameters
    ----------
    n_customers : int, optional
        Only the customers with the most spending days.

    Returns
    -------
    DataFrame
        ``unique_id`` (customer), ``ds`` and ``y`` (US dollars): only days with a purchase, the others are zeros.
    """
    raw = pd.read_csv(fetch_file("cdnow"), index_col=0, parse_dates=["date"])
    raw["price"] = raw.index.to_series().map(_CDNOW_REPAIRS).fillna(raw["price"])
    spent = raw.groupby(["customer_id", "date"], as_index=False)["price"].sum()
    if n_customers is not None:
        most = int(check_number("n_customers", n_customers, 1, integer=True))
        days = spent.groupby("customer_id").size().sort_values(ascending=False, kind="stable")
        spent = spent[spent["customer_id"].isin(days.index[:most])]
    return _long(spent["customer_id"].astype(str), spent["date"], spent["price"])


def _long(unique_id: str | pd.Series, ds: pd.Series, y: pd.Series) -> pd.DataFrame:
    frame = pd.DataFrame({"ds": ds.to_numpy(), "y": y.to_numpy(dtype=float)})
    frame.insert(0, "unique_id", unique_id if isinstance(unique_id, str) else unique_id.to_numpy())
    frame.attrs["kind"] = "public trace"
    return frame
