"""Earlier reports: what is kept of them, and what has changed since."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._files import file_sha256, read_manifest, read_whole
from gpudemand._validation import InputError
from gpudemand.metrics import evaluate, interval_columns
from gpudemand.report.tables import format_date, format_share
from gpudemand.study.requirement import Requirement
from gpudemand.study.selection import SCORED_LEVELS
from gpudemand.study.usage_tables import MEAN, explain_change
from gpudemand.units import format_count, format_number_of

if TYPE_CHECKING:
    from gpudemand.study.study import Study

#: File of a report that lists the others and holds its numbers; see ``report.schema.json``.
MANIFEST, MADE_BY, FORMAT = "report.json", "gpudemand report", 2
#: Folder of a report that holds what is needed of earlier ones.
HISTORY = "history"
#: Folder of a report that holds files of earlier ones that somebody has edited.
EDITED = "edited"
#: Tables of a report that later ones are compared with.
KEPT = {name: f"tables/{name}.parquet" for name in ("forecast", "plan", "usage")}
#: From one look at the plan to the next; of reports before that, one a month is kept.
_MONTH = pd.Timedelta("28D")


@dataclass(frozen=True)
class EarlierReport:
    """An earlier report; `content`: of its ``report.json``."""

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
    """Read the numbers of a report, after a look at the checksums of all that is read of it."""
    try:
        content = json.loads(read_whole(folder / MANIFEST))
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
    """The report to compare with, or None: the newest there whose log ends four weeks before, else the oldest."""
    if previous is not None:
        report = read_earlier(previous)
        if report.log_end >= log_end:
            raise InputError(
                f"the log of the report in {str(previous)!r} ends on {report.log_end:%Y-%m-%d}, not before this one's; "
                "name an earlier report."
            )
        return report
    known = [report for report in _reports(out_dir)[0] if report.log_end < log_end]
    if not known and (out_dir / MANIFEST).is_file():
        read_earlier(out_dir)  # says what is wrong with it, if anything is
    month_ago = [report for report in known if report.log_end <= log_end - _MONTH]
    return month_ago[-1] if month_ago else known[0] if known else None


#: Settings that usage depends on: where they differ, reports of one log differ as well.
_OF_USAGE = ("freq", "tz", "demand", "cluster")
#: Difference of usage, relative to the larger, that corrections of one log do not make.
_ANOTHER_LOG = 0.5


def check_same_log(out_dir: Path, study: Study) -> list[str]:
    """Refuse a folder that holds the report of another log, told by usage; a sentence where no bin can be compared."""
    if not (known := _reports(out_dir)[0]):
        return []
    here, actual = settings_of(study), study.usage_tables.total
    both = known[-1].table("usage").merge(actual.assign(ds=actual["ds"].dt.tz_convert("UTC")), on=_KEYS)
    if both.empty or any(known[-1].content["settings"].get(name) != here[name] for name in _OF_USAGE):
        return [
            f"the report that stood here, of a log to {known[-1].log_end:%Y-%m-%d}, has no days that can be compared "
            "with this log; if that was another log, choose another --out."
        ]
    then, now = (both.loc[both["unique_id"] == MEAN, name] for name in ("y_x", "y_y"))
    if (then - now).abs().sum() > _ANOTHER_LOG * max(then.sum(), now.sum()):
        raise InputError(
            f"{str(out_dir)!r} holds the report of another log, to {known[-1].log_end:%Y-%m-%d}: on the days that both "
            f"hold, {then.mean():,.0f} GPUs were held there and {now.mean():,.0f} here; choose another --out."
        )
    return []


def keep_history(out_dir: Path, folder: Path, log_end: pd.Timestamp) -> list[str]:
    """Copy what is needed of other reports: those of the last four weeks, and before that the last of each month.

    Those whose log ends later, that cannot be read, or whose files were edited are copied, too. Returns sentences on
    these.
    """
    said = _keep_edited(out_dir, folder)
    known, unread = _reports(out_dir)
    last_of_month = {f"{report.log_end:%Y-%m}": report for report in known if report.log_end < log_end}.values()
    for report in known:
        own = report.folder == out_dir and report.log_end == log_end  # the same again
        if not own and (report.log_end > log_end - _MONTH or report in last_of_month):
            place = folder / HISTORY / f"{report.log_end.tz_convert('UTC'):%Y-%m-%dT%H%M%SZ}"
            (place / "tables").mkdir(parents=True, exist_ok=True)
            for file in (MANIFEST, *KEPT.values()):
                shutil.copyfile(report.folder / file, place / file)
    if later := [f"{report.log_end:%Y-%m-%d}" for report in known if report.log_end > log_end]:
        said.append(f"reports of logs that end later are kept in {HISTORY!r}: {', '.join(later)}.")
    for place, reason in unread:
        name = place.name if place != out_dir else f"unread-{file_sha256(place / MANIFEST)[:12]}"
        ignore = shutil.ignore_patterns(HISTORY, EDITED)
        shutil.copytree(place, folder / HISTORY / name, dirs_exist_ok=True, ignore=ignore if place == out_dir else None)
        said.append(f"a report that cannot be compared with is kept as '{HISTORY}/{name}': {reason}")
    return said


def _keep_edited(out_dir: Path, folder: Path) -> list[str]:
    """Copy files of the report before that are not as it wrote them, and those that it kept itself."""
    if not (out_dir / MANIFEST).is_file():
        return []
    if (out_dir / EDITED).is_dir():
        shutil.copytree(out_dir / EDITED, folder / EDITED)
    content = json.loads((out_dir / MANIFEST).read_bytes())
    name = file_sha256(out_dir / MANIFEST)[:12]
    edited = [
        file
        for file, checksum in content["files"].items()
        if file.partition("/")[0] not in (HISTORY, EDITED)
        and (out_dir / file).is_file()
        and file_sha256(out_dir / file) != checksum
    ]
    for file in edited:
        place = folder / EDITED / name / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out_dir / file, place)
    said = f"{', '.join(edited)} of the report before had been edited; kept in '{EDITED}/{name}'."
    return [said] if edited else []


def _reports(out_dir: Path) -> tuple[list[EarlierReport], list[tuple[Path, str]]]:
    """Reports in a folder and its history, by the end of their logs, and those that cannot be read with the reason."""
    known, unread = [], []
    kept = sorted((out_dir / HISTORY).iterdir()) if (out_dir / HISTORY).is_dir() else []
    for place in (*kept, *([out_dir] if (out_dir / MANIFEST).is_file() else [])):
        try:
            known.append(read_earlier(place))
        except InputError as error:
            unread.append((place, str(error)))
    return sorted(known, key=lambda report: report.log_end), unread


def settings_of(study: Study) -> dict[str, Any]:
    """Settings of a report; ``demand`` is what its forecast is of."""
    settings = study.settings
    recorded = [each.name for each in fields(settings) if each.metadata.get("recorded", True)]
    return {
        **{name: plain(getattr(settings, name)) for name in recorded},
        "demand": study.source.demand,
        "cluster": plain(settings.clusters),
        "programmes": [programme.name for programme in study.programmes],
        "events": None if settings.events is None else sorted(set(settings.events["event"].astype(str))),
    }


def plain(value: Any) -> Any:
    """Value as JSON has it: no types of NumPy, no NaN; a Series in time by its times.

    >>> plain({"gpus": np.float64(8), "wait": float("nan")})
    {'gpus': 8.0, 'wait': None}
    """
    if isinstance(value, pd.Series):
        return {pd.Timestamp(str(time)).isoformat(): float(count) for time, count in value.items()}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: The forecast that an earlier one has to beat: the value of the last bin that it knew.
LAST_VALUE = "last value"
_KEYS = ["unique_id", "ds"]
_TIMES = ("log_end", "order_arrives", "first_crossing", "order_by")
_REQUIREMENT = (*_TIMES[:2], "basis", "required", "installed", "shortfall", *_TIMES[2:])


def compare_requirements(earlier: EarlierReport, numbers: dict[str, Any], requirement: Requirement) -> pd.DataFrame:
    """Requirement of an earlier report and of this one.

    ``required_both``: for the four weeks that this report's is for; missing where the earlier one does not plan for
    them.
    """
    reports = [{name: each.get(name) for name in _REQUIREMENT} for each in (earlier.numbers, numbers)]
    table = pd.DataFrame(reports).astype({"basis": STRING})
    times = {name: pd.to_datetime(table[name], utc=True, format="ISO8601") for name in _TIMES}
    table = table.assign(**{name: each.dt.tz_convert(requirement.arrival.tz) for name, each in times.items()})
    plans = (earlier.table("plan"), requirement.to_frame())
    then, now = (_by_bin(plan, each["basis"]) for plan, each in zip(plans, (earlier.numbers, numbers), strict=True))
    arrival = now.index[now.index <= max(requirement.arrival, now.index[0])][-1]
    table.insert(4, "required_both", [float(each.get(arrival, np.nan)) for each in (then, now)])
    return table


def _by_bin(plan: pd.DataFrame, basis: str) -> pd.Series:
    """GPUs required by bin, by the plan that decides."""
    rows = plan[plan["basis"] == basis]
    return rows.set_index(rows["ds"].dt.tz_convert("UTC"))["required"]


def changed_settings(earlier: EarlierReport, study: Study) -> list[str]:
    """Names of the settings that differ from those of an earlier report."""
    before = earlier.content["settings"]
    return [name for name, value in settings_of(study).items() if before.get(name) != value]


def past_forecast(earlier: EarlierReport, study: Study) -> pd.DataFrame:
    """Forecast of an earlier report for the whole bins since, beside actual values and the last value that it knew."""
    before, settings = earlier.content["settings"], settings_of(study)
    for name, what in (("freq", "bins of"), ("tz", "days in the zone"), ("demand", "demand as")):
        if before[name] != settings[name]:
            raise InputError(f"the earlier report has {what} {before[name]}, and this one {settings[name]}.")
    forecast, usage, actual = earlier.table("forecast"), earlier.table("usage"), study.usage_tables.total
    bounds = [name for pair in interval_columns(forecast, earlier.numbers["model"]).values() for name in pair]
    last = usage.sort_values("ds").groupby("unique_id")["y"].last()
    both = actual.assign(ds=actual["ds"].dt.tz_convert("UTC"))[[*_KEYS, "y"]]
    both = both.merge(forecast[[*_KEYS, earlier.numbers["model"], *bounds]], on=_KEYS)
    if both.empty:
        raise InputError("no whole bin of the earlier forecast has passed since.")
    both.insert(2, "cutoff", usage["ds"].max())
    both[LAST_VALUE] = both["unique_id"].map(last).astype(float)
    both["ds"] = both["ds"].dt.tz_convert(settings["tz"])
    return both.sort_values(_KEYS, ignore_index=True)


def score_forecast(past: pd.DataFrame) -> pd.DataFrame:
    """Score an earlier forecast, as of `past_forecast`, and the last value, which has no coverage."""
    model = next(name for name in past if name not in (*_KEYS, "cutoff", "y"))
    scores = evaluate(past, ["wape", "bias", "coverage"], by="unique_id").rename(columns={"wape": "wape_since"})
    means = past.groupby("unique_id")[["y", model, LAST_VALUE]].mean()
    bins = past.groupby("unique_id").size()
    rows = [
        {"series": series, "model": name, "bins": int(bins[series]), "mean_forecast": float(means.loc[series, name])}
        | {"mean_actual": float(means.loc[series, "y"])}
        | {column: scores.loc[(name, series)].get(column) for column in _SCORES}
        for series in means.index
        for name in (model, LAST_VALUE)
    ]
    return pd.DataFrame(rows).astype({"series": STRING, "model": STRING, **dict.fromkeys(_SCORES, float)})


_SCORES = ("wape_since", "bias", *(f"coverage_{level}" for level in SCORED_LEVELS))


def drivers_since(earlier: EarlierReport, study: Study) -> pd.DataFrame:
    """Change of demand since the end of an earlier report's log, against as many days before; see `explain_change`."""
    days = (pd.Timestamp(str(study.headline["log_end"])) - earlier.log_end).days
    return explain_change(study.source, max(days, 1))


def since_sentences(tables: Mapping[str, pd.DataFrame], earlier: EarlierReport, changed: list[str]) -> list[str]:
    """Sentences on the requirement then and now, on settings that changed, and on the earlier forecast."""
    then, now = (tables["since_requirement"].iloc[row] for row in range(2))
    text = (
        f"The report on the log to {format_date(then['log_end'])} required {format_number_of('GPU', then['required'])} "
        f"from {format_date(then['order_arrives'])} on; this one requires {format_count(now['required'])} from "
        f"{format_date(now['order_arrives'])} on."
    )
    if not pd.isna(then["required_both"]):
        text += f" For the latter time the earlier report required {format_count(then['required_both'])}."
    result = [text]
    if changed:
        result.append(f"Both are not alike in their settings, which matters: {', '.join(changed).replace('_', ' ')}.")
    if "since_scores" in tables:
        result.append(past_forecast_sentence(tables["since_scores"], earlier))
    return result


def past_forecast_sentence(scores: pd.DataFrame, earlier: EarlierReport) -> str:
    """The earlier forecast of the mean beside the actual values, and beside the last value.

    >>> row = {"series": "mean", "model": "ETS", "bins": 30, "mean_forecast": 96.0, "mean_actual": 100.0}
    >>> own = {**row, "wape_since": 0.08, "bias": -0.04, "coverage_80": 0.8, "coverage_95": 0.9}
    >>> naive = {**row, "model": "last value", "wape_since": 0.1}
    >>> earlier = EarlierReport(Path(), {"headline": {"log_end": "2026-03-01T00:00:00+00:00"}})
    >>> past_forecast_sentence(pd.DataFrame([own, naive]), earlier)
    'Of the 30 bins since 1 Mar 2026 a mean of 96 GPUs was forecast, and 100 came: ...'
    """
    (_, own), (_, naive) = scores[scores["series"] == MEAN].iterrows()
    inside = (format_share(own[f"coverage_{level}"]) for level in (80, 95))
    return (
        f"Of the {format_number_of('bin', own['bins'])} since {format_date(earlier.log_end)} a mean of "
        f"{format_number_of('GPU', own['mean_forecast'])} was forecast, and {format_count(own['mean_actual'])} came: "
        f"WAPE {format_share(own['wape_since'], 1)} (last value {format_share(naive['wape_since'], 1)}), bias "
        f"{format_share(own['bias'], 1)}; the 80% interval contained {next(inside)} of them, the 95% interval "
        f"{next(inside)}."
    )
