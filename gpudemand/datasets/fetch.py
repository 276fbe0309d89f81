"""Download of public data sets, with checksums and a local cache."""

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

#: Seconds until a server has answered, and between two parts of its answer.
TIMEOUT_S = (10, 60)
#: Prices that lack their thousands digit in the published copy of CDNOW: row number -> price, US dollars.
_CDNOW_REPAIRS = {27632: 1286.01, 45314: 1028.51, 56479: 1119.68}


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
        A remote ``name`` of `catalog`.

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
        download = pooch.HTTPDownloader(timeout=TIMEOUT_S)
        return Path(
            pooch.retrieve(row.url, f"sha256:{row.sha256}", fname=row.file_name, path=folder, downloader=download)
        )
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
        A remote ``name`` of `catalog` that is a job log: ``"philly_jobs"``, ``"philly_users"``, ``"venus_jobs"``,
        ``"venus_users"``, ``"pai_jobs"``, ``"openb_pods"``, ``"dlrm_services"``, ``"genai_requests"``, ``"kth_sp2"``
        or ``"llnl_atlas"``.

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


def fetch_philly_nodes() -> pd.DataFrame:
    """Fetch the number of active GPU nodes of Philly by minute, 2017-10-03 to 2017-12-15.

    599 minutes of 2017-10-25 are missing, and zeros on 2017-10-26, 12-03 and 12-06 are outages of the recording.
    Repository MIT, trace CC BY 4.0. Cite Hu et al., SC 2021 and Jeon et al., USENIX ATC 2019.

    Returns
    -------
    DataFrame
        ``unique_id`` ("philly"), ``ds`` (unknown time zone) and ``y`` (nodes with a GPU in use).
    """
    raw = pd.read_csv(fetch_file("philly_nodes"))
    return _long("philly", pd.to_datetime(raw["time"]), raw["active"])


def fetch_spot_hourly(origin: str | pd.Timestamp = "2024-01-01") -> pd.DataFrame:
    """Fetch the hourly number of requested GPUs of six GPU models at Alibaba, 183 days.

    The trace has no calendar. The last 24 hours, in which it drains, are omitted. Tables MIT, trace without a
    licence (research or study). Cite Duan et al., ASPLOS 2026.

    Parameters
    ----------
    origin : str or Timestamp
        Date of hour 0; arbitrary, so weekdays have no meaning.

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
    """Fetch the daily spending of the customers of an online shop, 1997-01-01 to 1998-06-30.

    The public data set of the clusterwise-regression paper: 69,659 purchases of the cohort of 23,570 customers of early
    1997. Three prices that lack a digit in the published copy are restored. No licence is stated; a public teaching and
    research set. Cite Fader and Hardie, Interfaces 31(3), 2001.

    Parameters
    ----------
    n_customers : int, optional
        Only the customers with the most spending days.

    Returns
    -------
    DataFrame
        ``unique_id`` (customer), ``ds`` and ``y`` (US dollars), only days with a purchase; other days are zero.
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
