"""Files of usage series, rather than of jobs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gpudemand._validation import InputError, check_choice, check_columns, check_usage
from gpudemand.jobs.files import LIMITS, NO_LIMITS, Limits
from gpudemand.jobs.readers import read_jobs
from gpudemand.jobs.registry import USAGE_ONLY
from gpudemand.jobs.text import open_parquet
from gpudemand.store import is_store, read_store
from gpudemand.usage.pulled import pulled_usage


def read_usage(
    path: str | Path,
    format: str = "canonical",  # noqa: A002
    *,
    tz: str | None = None,
    limits: Limits | None = LIMITS,
) -> pd.DataFrame:
    """Read a file of usage series (rather than of jobs).

    Parameters
    ----------
    path : str or Path
        For ``canonical`` a CSV or Parquet file with ``unique_id``, ``ds``, ``y``; for ``prometheus`` the JSON or CSV
        of a range query of GPUs held per namespace. A store gives what `pulled_usage` does.
    format : {"canonical", "prometheus"}
    tz : str, optional
        Zone of times that are written without one (Prometheus' JSON always has one).
    limits : Limits, optional
        The largest file of Prometheus that is read; None for any size.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``y``.
    """
    path, _ = Path(path), check_choice("format", format, ("canonical", "prometheus"))
    if is_store(path):
        return pulled_usage(path, tz=tz or "UTC")
    if not path.is_file():
        raise InputError(f"there is no file at {str(path)!r}.")
    if format == "prometheus":
        from gpudemand.jobs.kubernetes import read_prometheus

        return read_prometheus(path, tz=tz, limits=limits)
    usage = check_columns(_read_file(path), ("unique_id", "ds", "y"), path.name)
    ds = pd.to_datetime(usage["ds"], format="ISO8601")
    ds = ds.dt.tz_localize(tz) if tz is not None and ds.dt.tz is None else ds
    return check_usage(usage.assign(ds=ds), allow_missing=True)


def read_log(
    path: Path,
    format: str = "canonical",  # noqa: A002
    *,
    tz: str | None = None,
    origin: object = None,
    limits: Limits | None = LIMITS,
) -> pd.DataFrame:
    """Read a job log or, where that is all that there is, usage over time: of Prometheus, a store of it, or a file.

    Parameters
    ----------
    path : Path
    format : str, default="canonical"
        Of `read_jobs`, or ``prometheus``. Canonical files with ``unique_id``, ``ds`` and ``y`` hold usage.
    tz, origin, limits
        As for `read_jobs`.

    Returns
    -------
    DataFrame
        As `read_jobs` or `read_usage` returns it.
    """
    if format == "canonical" and is_store(path) and not read_store(path).months("jobs"):
        return pulled_usage(path, by="namespace/gpu_type", tz=tz or "UTC")
    if format == USAGE_ONLY or (
        format == "canonical" and {"unique_id", "ds", "y"} <= _columns(path, limits or NO_LIMITS)
    ):
        usage = read_usage(path, format, tz=tz, limits=limits)
        if usage["ds"].dt.tz is None:
            raise InputError(f"the times in {path.name!r} have no zone; add tz, such as --tz Europe/Berlin.")
        return usage
    return read_jobs(path, format=format, tz=tz, origin=origin, limits=limits)


def _columns(path: Path, limits: Limits) -> set[str]:
    """Names of the columns of a plain file; none of any other."""
    if path.suffix == ".parquet" and path.is_file():
        with open_parquet(path, limits) as file:
            return set(file.schema_arrow.names)
    if path.suffix != ".csv" or not path.is_file():
        return set()
    with path.open("rb") as file:
        return set(file.readline(4096).decode("utf-8-sig", errors="replace").strip().split(","))


def _read_file(path: Path) -> pd.DataFrame:
    """Table of a file; the names of its folders are no columns."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path, partitioning=None)
    return pd.read_csv(path, dtype={"unique_id": str})
