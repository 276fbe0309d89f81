"""Slurm's accounting in a store: every run of every job, read again until it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.jobs.files import NO_LIMITS, existing_path
from gpudemand.jobs.log_columns import LogColumns
from gpudemand.jobs.readers import read_rows
from gpudemand.jobs.schema import TIME
from gpudemand.jobs.slurm import open_sacct
from gpudemand.jobs.time_parser import TimeParser, parse_timestamp
from gpudemand.pull.slurm_checks import checked_fields
from gpudemand.pull.slurm_nodes import events_of_file, keep_events
from gpudemand.slurm.command import (
    NEEDED,
    OPTIONAL,
    Sacct,
    by_id,
    call,
    ended_or_open,
    events_command,
    in_shell,
    months,
    node_events,
    shards_by_node,
    waiting_ids,
)
from gpudemand.store import Store, arrow_table, open_store, read_store

SOURCE = "slurm"
#: What identifies a run: Slurm's own number (a job's tasks have different ones), and when it was put into the queue.
_KEY = ["cluster", "job_id_raw", "submit"]
_ORDER = ["submit", "cluster", "job_id_raw"]
_OPEN = "SELECT cluster, job_id_raw, submit FROM stored WHERE \"end\" IS NULL AND status IN ('pending', 'running')"
_ENDED = 'SELECT cluster, job_id_raw, submit FROM stored WHERE "end" IS NOT NULL'
#: Records may reach Slurm's database late, when it was down; so much is read again.
_OVERLAP = pd.Timedelta("2D")


@dataclass
class SlurmPull:
    """What one pull did.

    Attributes
    ----------
    read, new : int
        Runs that were read, and those of them that the store did not have.
    gone : int
        Runs that the store had as open, and that Slurm does not know any more; they were removed.
    refused : dict of str to int
        Reason -> rows that were read and cannot be counted.
    """

    read: int = 0
    new: int = 0
    gone: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    seen: set[tuple[object, ...]] = field(default_factory=set, repr=False)


def pull_slurm(
    into: Path,
    *,
    since: object = None,
    clusters: str | None = None,
    files: Sequence[Path] = (),
    tz: object = None,
    shards_per_gpu: float | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> SlurmPull:
    """Pull Slurm's accounting into a store.

    Windows of a month are read one after the other from the end of the last pull on, and each is stored as a whole: a
    pull that is interrupted at any point is continued by the next. Runs that have not ended are read again by number.

    Parameters
    ----------
    into : Path
        Folder of the store, made if absent.
    since : time-like, optional
        Where the first pull begins (UTC); by default a year ago, at the first of the month.
    clusters : str, optional
        Names of clusters, or ``all``.
    files : sequence of Path
        What the commands of `slurm_commands` printed, instead of running them.
    tz : str or tzinfo, optional
        Zone of times in `files` that have none; those of `slurm_commands` have one.
    shards_per_gpu : float, optional
        How many ``gres/shard`` make one GPU; by default what the nodes say.
    progress : callable
        Called with a text before each step.

    Returns
    -------
    SlurmPull

    Raises
    ------
    InputError
        If a command fails, Slurm knows no such cluster or another time, or the store or a file cannot be used.
    """
    fields = () if files else checked_fields(_now(), clusters)
    shards = shards_per_gpu or ({} if files else shards_by_node()) or None
    done = SlurmPull()
    with open_store(Path(into)) as store:
        before = _count(store)
        if files:
            for file in files:
                progress(f"Reading {file.name}")
                if (events := events_of_file(existing_path(file))) is None:
                    _take(store, done, file, shards, tz)
                else:
                    keep_events(store, events)
            _note_files(store)
        else:
            _pull_windows(store, done, fields, since, clusters, shards, progress)
            progress("Reading open jobs again")
            _pull_open(store, done, fields, clusters, shards)
            progress("Reading the GPUs of nodes")
            keep_events(store, node_events(clusters) or "")
        done.new = _count(store) - before + done.gone
        counts = {"read": done.read, "new": done.new, "gone": done.gone, "refused": dict(done.refused)}
        store.about.setdefault("history", []).append({"source": SOURCE, "at": _now().isoformat(), **counts})
        store.commit()
    return done


def slurm_commands(into: Path, *, since: object = None, clusters: str | None = None) -> list[str]:
    """Return the commands that `pull_slurm` would run, for a shell, each with the file to print into.

    Parameters
    ----------
    into : Path
        Folder of the store, which need not exist.
    since, clusters
        As for `pull_slurm`.

    Examples
    --------
    >>> print(slurm_commands(Path("absent"), since="2026-03-01")[0])  # doctest: +SKIP
    TZ=UTC SLURM_TIME_FORMAT=%s sacct -a -D -P -s ... -S 2026-03-01T00:00:00 ... > sacct-2026-03-01.psv
    """
    fields = (*NEEDED, *OPTIONAL)
    store = read_store(into) if into.exists() else Store(into, {"pulls": {}}, {})
    windows = _windows(store, since)
    lines = [f"{Sacct(fields, ended_or_open(*w), clusters)} > sacct-{w[0]:%Y-%m-%d}.psv" for w in windows]
    still = _open_runs(store)
    for number, select in enumerate(by_id(str(key[1]) for key in still)):
        lines.append(f"{Sacct(fields, select, clusters)} > sacct-open-{number}.psv")
    return [*lines, f"{in_shell(events_command(clusters))} > sacctmgr-events.psv"]


def _windows(store: Store, since: object) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    now = _now()
    state = _state(store)
    first = None if since is None else parse_timestamp(since, "UTC", "since").tz_convert("UTC")
    begin = first or now.normalize().replace(day=1) - pd.DateOffset(years=1)
    if state:
        until = pd.Timestamp(state["until"])
        if until > now:
            clock = f"the clock of this machine says {now:%Y-%m-%d %H:%M:%S} UTC"
            raise InputError(f"{str(store.path)!r} was pulled until {until:%Y-%m-%d %H:%M:%S}, but {clock}; set it.")
        if first is None or first >= pd.Timestamp(state["since"]):
            begin = max(until - _OVERLAP, pd.Timestamp(state["since"]))
    if begin >= now:
        raise InputError(f"since={begin} lies in the future.")
    return months(begin, now)


def _now() -> pd.Timestamp:
    return pd.Timestamp.now(tz="UTC").floor("s")


def _state(store: Store) -> dict[str, str]:
    return dict(store.about["pulls"].get(SOURCE, {}))


def _pull_windows(
    store: Store,
    done: SlurmPull,
    fields: tuple[str, ...],
    since: object,
    clusters: str | None,
    shards: float | Mapping[str, float] | None,
    progress: Callable[[str], None],
) -> None:
    windows = _windows(store, since)
    first = min(windows[0][0], pd.Timestamp(_state(store).get("since", windows[0][0])))
    for begin, end in windows:
        progress(f"Reading {begin:%Y-%m-%d} to {end:%Y-%m-%d}")
        with store.scratch("sacct.psv") as answer:
            call(Sacct(fields, ended_or_open(begin, end), clusters), answer)
            _take(store, done, answer, shards)
        reached = max(end, pd.Timestamp(_state(store).get("until", end)))
        store.about["pulls"][SOURCE] = {"since": first.isoformat(), "until": reached.isoformat()}
        store.commit()


def _pull_open(
    store: Store,
    done: SlurmPull,
    fields: tuple[str, ...],
    clusters: str | None,
    shards: float | Mapping[str, float] | None,
) -> None:
    """Read the runs again that were open and in no window, and those that wait; drop those that Slurm has forgotten."""
    still = _open_runs(store) - done.seen
    for select in by_id([*(str(key[1]) for key in still), *(waiting_ids(clusters) or [])]):
        with store.scratch("sacct.psv") as answer:
            call(Sacct(fields, select, clusters), answer)
            _take(store, done, answer, shards)
    left = (still & _open_runs(store)) - done.seen
    gone = pd.DataFrame(sorted(left), columns=_KEY).astype({"submit": TIME})
    for month, keys in gone.groupby(gone["submit"].dt.strftime("%Y-%m")):
        stored = arrow_table(keys)
        store.merge("jobs", str(month), stored.slice(0, 0), stored, _ORDER)
    done.gone = len(gone)


def _take(
    store: Store, done: SlurmPull, file: Path, shards: float | Mapping[str, float] | None, tz: object = "UTC"
) -> None:
    """Put what a command printed into the store."""
    table = open_sacct(file, NO_LIMITS)
    done.refused += Counter(table.bad.values())
    if "JobIDRaw" not in table.names:
        raise InputError(f"{file.name!r} has no JobIDRaw, which tells runs apart; use the commands of --command-only.")
    if not len(table.lines):
        return
    log = LogColumns(table, TimeParser.from_arguments(tz, None, file.name), file, shards)
    jobs = read_rows(log, "sacct", "measured")
    jobs = jobs.assign(
        cluster=jobs["cluster"].fillna(""),
        job_id_raw=log.text("JobIDRaw"),
        node_list=log.text("NodeList"),
        tres=log.text("AllocTRES").fillna(log.text("ReqTRES")),
    ).drop_duplicates(_KEY, keep="last")
    jobs = jobs[(log.exclude_reason == None)[jobs.index]]  # noqa: E711 (element by element)
    reason = pd.Series(log.reject_reason, dtype=object)[jobs.index]
    done.read += len(jobs)
    done.refused += Counter(reason.dropna())
    good = _without_outdated(store, jobs[reason.isna()])
    for month, rows in good.groupby(good["submit"].dt.strftime("%Y-%m")):
        stored = arrow_table(rows)
        store.merge("jobs", str(month), stored, stored.select(_KEY), _ORDER)
    _keep_refused(store, jobs.assign(reason=reason))
    still_open = good[good["end"].isna() & good["status"].isin(["pending", "running"])]
    done.seen.update(still_open[_KEY].itertuples(index=False, name=None))


def _without_outdated(store: Store, jobs: pd.DataFrame) -> pd.DataFrame:
    """Rows but those of an older file that show a run as open which the store knows has ended."""
    is_open = jobs["end"].isna()
    first = jobs.loc[is_open, "submit"].min()
    ended = None if pd.isna(first) else store.query("jobs", f"{_ENDED} AND submit >= '{first.isoformat()}'")
    if ended is None:
        return jobs
    known = pd.MultiIndex.from_frame(ended.to_pandas().astype({"submit": TIME}))
    return jobs[~(is_open & pd.MultiIndex.from_frame(jobs[_KEY]).isin(known))]


def _keep_refused(store: Store, jobs: pd.DataFrame) -> None:
    """Remember the rows that cannot be counted, until they are read again and can."""
    keys = ["cluster", "job_id_raw", "submit_text"]
    rows = jobs.assign(submit_text=jobs["submit"].astype(str))[[*keys, "reason"]]
    refused = rows[rows["reason"].notna()]
    if len(refused) or store.months("refused"):
        store.merge("refused", "all", arrow_table(refused), arrow_table(rows[keys]))


def _note_files(store: Store) -> None:
    """Note the period of what was read from files: from the first submission to the newest time."""
    found = store.query("jobs", 'SELECT min(submit) AS a, max(greatest(submit, start, "end")) AS b FROM stored')
    if found is not None:
        first, last = (found[name][0].as_py() for name in ("a", "b"))
        old = _state(store) or {"since": first.isoformat(), "until": last.isoformat()}
        until = max(pd.Timestamp(old["until"]), pd.Timestamp(last))
        store.about["pulls"][SOURCE] = {"since": old["since"], "until": until.isoformat()}


def _open_runs(store: Store) -> set[tuple[object, ...]]:
    found = store.query("jobs", _OPEN)
    return set() if found is None else set(found.to_pandas().itertuples(index=False, name=None))


def _count(store: Store) -> int:
    found = store.query("jobs", "SELECT count(*) AS n FROM stored")
    return 0 if found is None else int(found["n"][0].as_py())
