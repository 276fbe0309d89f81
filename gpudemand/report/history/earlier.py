"""Earlier reports in the folder of a report: which one to compare with, and which ones to keep."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand._manifest import read_manifest
from gpudemand._validation import InputError

#: File of a report that lists the others and holds its numbers; see ``report.schema.json``.
MANIFEST, MADE_BY, FORMAT = "report.json", "gpudemand report", 2
#: Folder of a report that holds what is needed of earlier ones.
HISTORY = "history"
#: Tables of a report that later ones are compared with.
KEPT = {name: f"tables/{name}.parquet" for name in ("forecast", "plan", "usage")}
#: From one look at the plan to the next; of reports before that, one a month is kept.
_MONTH = pd.Timedelta("28D")


@dataclass(frozen=True)
class EarlierReport:
    """An earlier report.

    Parameters
    ----------
    folder : Path
    content : dict
        Of its ``report.json``.
    """

    folder: Path
    content: dict[str, Any]

    @property
    def numbers(self) -> dict[str, Any]:
        """Its headline."""
        return dict(self.content["headline"])

    @property
    def log_end(self) -> pd.Timestamp:
        """End of its log."""
        return pd.Timestamp(self.numbers["log_end"])

    def table(self, name: str) -> pd.DataFrame:
        """One of its tables, times in UTC."""
        table = pd.read_parquet(self.folder / KEPT[name])
        return table.assign(ds=table["ds"].dt.tz_convert("UTC"))


def read_earlier(folder: Path) -> EarlierReport:
    """Read the numbers of a report, after a look at the checksums of all that is read of it.

    Raises
    ------
    InputError
        If the folder holds no report, or one that is damaged or of another version.
    """
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except OSError:
        raise InputError(f"{str(folder)!r} holds no {MANIFEST}; name the folder of an earlier report.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{MANIFEST} in {str(folder)!r} is damaged; name the folder of another report.") from None
    if not isinstance(content, dict) or content.get("made_by") != MADE_BY:
        raise InputError(f"{MANIFEST} in {str(folder)!r} is not of gpudemand; name the folder of an earlier report.")
    if content.get("format") != FORMAT:
        raise InputError(
            f"the report in {str(folder)!r} has format {content.get('format')!r}, and this version reads {FORMAT}; "
            "compare with a report that this version wrote."
        )
    report = EarlierReport(folder, read_manifest(folder, MANIFEST, FORMAT, only=KEPT.values()))
    try:
        report.log_end.tz_convert("UTC")
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{MANIFEST} in {str(folder)!r} has no headline; name the folder of another report.") from None
    return report


def earlier_report(out_dir: Path, previous: Path | None, log_end: pd.Timestamp) -> EarlierReport | None:
    """Choose the report to compare with.

    Parameters
    ----------
    out_dir : Path
        Folder of the report to be written. Of the one that stands there and those of its history, the newest is taken
        whose log ends at least four weeks before `log_end`; otherwise the oldest.
    previous : Path or None
        Folder of the one to take instead.
    log_end : Timestamp

    Returns
    -------
    EarlierReport or None
        None where there is none yet.

    Raises
    ------
    InputError
        If `previous` cannot be read or is not earlier, or a report stands in `out_dir` that cannot be read and there is
        no other.
    """
    if previous is not None:
        report = read_earlier(previous)
        if report.log_end >= log_end:
            raise InputError(
                f"the log of the report in {str(previous)!r} ends on {report.log_end:%Y-%m-%d}, not before this one's; "
                "name an earlier report."
            )
        return report
    known = sorted(_known(out_dir, log_end), key=lambda report: report.log_end)
    if not known and (out_dir / MANIFEST).is_file():
        read_earlier(out_dir)  # says what is wrong with it, if anything is
    month_ago = [report for report in known if report.log_end <= log_end - _MONTH]
    return month_ago[-1] if month_ago else known[0] if known else None


def keep_history(out_dir: Path, folder: Path, log_end: pd.Timestamp) -> None:
    """Copy what is needed of earlier reports: those of the last four weeks, and before that the last of each month.

    Parameters
    ----------
    out_dir : Path
        Folder of the report that is to be replaced.
    folder : Path
        Folder of the one that replaces it.
    log_end : Timestamp
        End of its log.
    """
    known = sorted(_known(out_dir, log_end), key=lambda report: report.log_end)
    last_of_month = {f"{report.log_end:%Y-%m}": report for report in known}.values()
    for report in known:
        if report.log_end > log_end - _MONTH or report in last_of_month:
            place = folder / HISTORY / f"{report.log_end.tz_convert('UTC'):%Y-%m-%dT%H%M%SZ}"
            (place / "tables").mkdir(parents=True, exist_ok=True)
            for file in (MANIFEST, *KEPT.values()):
                shutil.copyfile(report.folder / file, place / file)


def _known(out_dir: Path, log_end: pd.Timestamp) -> Iterable[EarlierReport]:
    """Reports in a folder and its history whose log ends earlier, and that can be read."""
    for place in (*(out_dir / HISTORY).glob("*"), out_dir):
        try:
            report = read_earlier(place)
        except InputError:
            continue
        if report.log_end < log_end:
            yield report
