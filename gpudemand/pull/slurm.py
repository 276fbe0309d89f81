"""`pull_slurm`: Slurm's accounting into a store."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from gpudemand._validation import InputError, nearest, shorten
from gpudemand.jobs.columns import LogColumns
from gpudemand.jobs.files import NO_LIMITS, existing_path
from gpudemand.jobs.read import read_rows
from gpudemand.jobs.schema import TIME
from gpudemand.jobs.slurm import EVENT_FIELDS, open_sacct, read_events, shards_per_gpu
from gpudemand.jobs.times import TimeParser, parse_timestamp
from gpudemand.store import Store, arrow_table, open_store, read_store

#: What Slurm 22.05 and newer print, and what to do; the first that is found counts, so causes stand before effects.
_ADVICE = (
    (r"Invalid field requested", "this Slurm is older than 20.11, or the field was renamed; update Slurm or gpudemand"),
    (
        r"cannot stat file|configuration source|DNS SRV lookup",
        "name the file slurm.conf of the cluster in SLURM_CONF, or run this where sinfo answers",
    ),
    (
        r"getaddrinfo\(\) failed|Name or service not known|Unable to resolve",
        "correct AccountingStorageHost in slurm.conf, or this machine's DNS",
    ),
    (r"Did you start munged|Munge encode failed", "start munge on this machine"),
    (
        r"authentication error|Invalid credential|Munge decode failed|(?:Rewound|Expired) credential",
        "give this machine the munge key of the cluster, and set its clock",
    ),
    (
        r"Access/permission denied|Access denied|Insufficient priv|not authorized",
        "run this as an operator of Slurm, or give one the commands that --command-only prints",
    ),
    (
        r"Connection refused|timed out|Connection reset|Unable to contact|Problem talking to the database",
        "slurmdbd does not answer: start it, or try again later, and the pull goes on from here",
    ),
)


def failure(command: str, said: str, status: int) -> InputError:
    """Return the error of a command: the line that names the cause, and what to do.

    `command`: its name. `said`: what it printed as errors. `status`: its exit status.
    """
    lines = [re.sub(rf"^{command}: (?:error|fatal): ", "", line.strip()) for line in said.splitlines() if line.strip()]
    found = ((line, advice) for cause, advice in _ADVICE for line in lines if re.search(cause, line, re.IGNORECASE))
    otherwise = (lines[-1] if lines else f"exit status {status}", f"run {command} by hand, and mend what it names")
    line, advice = next(found, otherwise)
    return InputError(f"{command} failed ({shorten(line.rstrip('.'), 200)}): {advice}.")


#: Without these no job can be counted ...
NEEDED = ("JobIDRaw", "JobID", "Cluster", "User", "Account", "Submit", "Start", "End", "State", "ReqTRES", "AllocTRES")
#: ... and of these those are asked for that this version knows. None holds what users write, which may hold the bars.
OPTIONAL = (
    *("Partition", "QOS", "Eligible", "ElapsedRaw", "TimelimitRaw", "ExitCode", "NNodes", "NodeList", "NTasks"),
    *("TRESUsageInAve", "TRESUsageInTot"),
)
#: By these, sacct also lists jobs that were cancelled before they were eligible, which it otherwise leaves out.
_STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
#: Times are understood in UTC, whatever the zone of the cluster, and printed in seconds since 1970: of any longer
#: format sacct prints the first 19 characters, without a zone.
_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
_JOBS_A_CALL = 1000
_LONGEST_S = 6 * 3600


def sacct_command(fields: Sequence[str], select: Sequence[str], clusters: str | None = None) -> list[str]:
    """Words of a call of ``sacct`` whose answer has a row for every run of a job and for every step.

    `select`: options that choose the jobs. `clusters`: names of clusters, or ``all``; by default the one that the
    call is made on.
    """
    return ["sacct", "-a", "-D", "-P", *_on(clusters), *select, "-o", ",".join(fields)]


def _on(clusters: str | None) -> list[str]:
    return ["-M", clusters] if clusters else []


def ended_or_open(begin: pd.Timestamp, end: pd.Timestamp) -> tuple[str, ...]:
    """Options for the jobs that ended, ran or waited at some time between two times."""
    return ("-s", _STATES, "-S", f"{begin:%Y-%m-%dT%H:%M:%S}", "-E", f"{end:%Y-%m-%dT%H:%M:%S}")


def by_id(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Options for jobs by their numbers, as many at once as a command line takes."""
    numbers = sorted(set(ids))
    for first in range(0, len(numbers), _JOBS_A_CALL):
        yield ("-j", ",".join(numbers[first : first + _JOBS_A_CALL]))


def months(begin: pd.Timestamp, end: pd.Timestamp) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Windows from `begin` to `end`, cut where months begin.

    >>> day = pd.Timestamp("2026-03-31", tz="UTC")
    >>> [f"{low:%m-%d} to {high:%m-%d}" for low, high in months(day, day + pd.Timedelta("3D"))]
    ['03-31 to 04-01', '04-01 to 04-03']
    """
    firsts = pd.date_range(begin.normalize(), end, freq="MS")
    edges = [begin, *(first for first in firsts if begin < first < end), end]
    return list(itertools.pairwise(edges))


def known_fields() -> tuple[str, ...]:
    """Fields to ask this version of Slurm for."""
    known = set(_output("sacct", "-e").split())
    missing = [name for name in NEEDED if name not in known]
    if missing:
        raise InputError(f"this sacct knows no field {missing[0]}; Slurm 20.11 or newer is needed.")
    return (*NEEDED, *(name for name in OPTIONAL if name in known))


def call(words: Sequence[str], answer: Path) -> None:
    """Run a command, and write what it prints to a file."""
    with answer.open("wb") as file:
        _run(words, file.fileno())


def events_command(clusters: str | None = None) -> list[str]:
    """Words of the command that prints which GPUs clusters had and nodes missed, as long as Slurm remembers."""
    which = [] if clusters is None else ["all_clusters" if clusters == "all" else f"cluster={clusters}"]
    return ["sacctmgr", "-P", "show", "event", "all_time", *which, f"format={','.join(EVENT_FIELDS)}"]


def in_shell(words: Sequence[str]) -> str:
    """A command as one types it in a shell, with the environment in which times are seconds of UTC."""
    return " ".join(f"{name}={value}" for name, value in _ENVIRONMENT.items()) + " " + shlex.join(words)


def shards_by_node() -> dict[str, float]:
    """Shards that make one GPU, by node; empty where there are none, or nobody can tell."""
    lines = (_answer("sinfo", "-h", "-a", "-N", "-o", "%N|%G") or "").splitlines()
    found = {node: shards_per_gpu(gres) for node, _, gres in (line.partition("|") for line in lines)}
    return {node: count for node, count in found.items() if count == count}


def _answer(*words: str) -> str | None:
    """What a command prints; None where nobody can tell."""
    try:
        return _output(*words)
    except InputError:
        return None


def _output(*words: str) -> str:
    return _run(words, subprocess.PIPE).decode("utf-8", "replace")


def _run(words: Sequence[str], stdout: int) -> bytes:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT},
            timeout=_LONGEST_S,
            check=False,
        )
    except FileNotFoundError:
        raise InputError(
            f"there is no {words[0]} on this machine; run this where Slurm's commands are, or give the commands that "
            "--command-only prints to a colleague who has them."
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{words[0]} cannot be run ({error}).") from error
    if done.returncode:
        raise failure(words[0], done.stderr.decode("utf-8", "replace"), done.returncode)
    return done.stdout or b""


#: As long as munge accepts a credential, without which nothing of Slurm answers ("munged" manual, option ``--ttl``).
_CLOCKS_APART = pd.Timedelta("5min")


def _check_clock(now: pd.Timestamp) -> None:
    """Raise if the clocks of this machine and of Slurm's controller, where it answers, are far apart."""
    _, _, time = (_answer("scontrol", "show", "config") or "").partition("\n")[0].rpartition(" ")
    if not time.isdecimal():
        return
    theirs = pd.Timestamp(int(time), unit="s", tz="UTC")
    if abs(theirs - now) > _CLOCKS_APART:
        raise InputError(
            f"the clock of this machine says {now:%Y-%m-%d %H:%M} and that of Slurm's controller "
            f"{theirs:%Y-%m-%d %H:%M} (UTC); set the one that is off."
        )


def _check_clusters(clusters: str | None) -> None:
    """Raise for a name that no cluster of the accounting has."""
    if clusters in (None, "all"):
        return
    answer = _answer("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster")
    known = None if answer is None else answer.split()
    for name in str(clusters).split(","):
        if known is not None and name.strip().lower() not in known:
            raise InputError(
                f"Slurm's accounting has no cluster {name.strip()!r}.{nearest(name, known)} It has {', '.join(known)}."
            )


def events_of_file(file: Path) -> str | None:
    """Text of a file that holds the answer of ``sacctmgr``; None of any other."""
    with file.open("rb") as lines:
        if not lines.readline(1000).startswith("|".join(EVENT_FIELDS[:2]).encode()):
            return None
    return file.read_text(encoding="utf-8", errors="replace")


def keep_events(store: Store, answer: str) -> None:
    """Put the events of clusters and nodes into the store; those that Slurm has purged since stay."""
    events = read_events(answer)
    if len(events):
        rows, key = arrow_table(events), ["cluster", "node", "begin"]
        store.merge("nodes", "all", rows, rows.select(key), [*key, "gpu_type"])


SOURCE = "slurm"
#: What identifies a run: Slurm's own number (a job's tasks have different ones), and when it was put into the queue.
_JOB_KEY = ["cluster", "job_id_raw", "submit"]
_ORDER = ["submit", "cluster", "job_id_raw"]
_KEYS_WHERE = f"SELECT {', '.join(_JOB_KEY)} FROM stored WHERE"
#: Records may reach Slurm's database late, when it was down; so much is read again.
_OVERLAP = pd.Timedelta("2D")


@dataclass
class SlurmPull:
    """What one pull did.

    `read`, `new`: runs that were read, and those of them that the store did not have. `gone`: runs that the store had
    as open, and that Slurm does not know any more; they were removed. `refused`: reason -> rows that were read and
    cannot be counted.
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
    fields = () if files else known_fields()
    if not files:
        _check_clock(_now())
        _check_clusters(clusters)
    shards = shards_per_gpu or ({} if files else shards_by_node()) or None
    done = SlurmPull()
    with open_store(Path(into)) as store:
        before = _count(store)

        def read(select: Sequence[str]) -> None:
            with store.scratch("sacct.psv") as answer:
                call(sacct_command(fields, select, clusters), answer)
                _take(store, done, answer, shards)

        if files:
            for file in files:
                progress(f"Reading {file.name}")
                if (events := events_of_file(existing_path(file))) is None:
                    _take(store, done, file, shards, tz)
                else:
                    keep_events(store, events)
            _note_files(store)
        else:
            _pull_windows(store, read, since, progress)
            progress("Reading open jobs again")
            _pull_open(store, done, read, clusters)
            progress("Reading the GPUs of nodes")
            keep_events(store, _answer(*events_command(clusters)) or "")
        done.new = _count(store) - before + done.gone
        counts = {"read": done.read, "new": done.new, "gone": done.gone, "refused": dict(done.refused)}
        store.about.setdefault("history", []).append({"source": SOURCE, "at": _now().isoformat(), **counts})
        store.commit()
    return done


def slurm_commands(into: Path, *, since: object = None, clusters: str | None = None) -> list[str]:
    """Return the commands that `pull_slurm` would run, for a shell, each with the file to print into.

    `into`: folder of the store, which need not exist. `since`, `clusters`: as for `pull_slurm`.

    >>> print(slurm_commands(Path("absent"), since="2026-03-01")[0])  # doctest: +SKIP
    TZ=UTC SLURM_TIME_FORMAT=%s sacct -a -D -P -s ... -S 2026-03-01T00:00:00 ... > sacct-2026-03-01.psv
    """
    fields = (*NEEDED, *OPTIONAL)
    store = read_store(into) if into.exists() else Store(into, {"pulls": {}}, {})
    commands = {
        f"sacct-{window[0]:%Y-%m-%d}": sacct_command(fields, ended_or_open(*window), clusters)
        for window in _windows(store, since)
    }
    for number, select in enumerate(by_id(str(key[1]) for key in _open_runs(store))):
        commands[f"sacct-open-{number}"] = sacct_command(fields, select, clusters)
    commands["sacctmgr-events"] = events_command(clusters)
    return [f"{in_shell(words)} > {name}.psv" for name, words in commands.items()]


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
    store: Store, read: Callable[[Sequence[str]], None], since: object, progress: Callable[[str], None]
) -> None:
    windows = _windows(store, since)
    first = min(windows[0][0], pd.Timestamp(_state(store).get("since", windows[0][0])))
    for begin, end in windows:
        progress(f"Reading {begin:%Y-%m-%d} to {end:%Y-%m-%d}")
        read(ended_or_open(begin, end))
        reached = max(end, pd.Timestamp(_state(store).get("until", end)))
        store.about["pulls"][SOURCE] = {"since": first.isoformat(), "until": reached.isoformat()}
        store.commit()


def _pull_open(store: Store, done: SlurmPull, read: Callable[[Sequence[str]], None], clusters: str | None) -> None:
    """Read the runs again that were open and in no window, and those that wait; drop those that Slurm has forgotten."""
    still = _open_runs(store) - done.seen
    # Also those that are held, which no window lists.
    waiting = (_answer("squeue", "-h", "-a", *_on(clusters), "-t", "PD", "-o", "%A") or "").split()
    for select in by_id([*(str(key[1]) for key in still), *filter(str.isdecimal, waiting)]):
        read(select)
    left = (still & _open_runs(store)) - done.seen
    gone = pd.DataFrame(sorted(left), columns=_JOB_KEY).astype({"submit": TIME})
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
    ).drop_duplicates(_JOB_KEY, keep="last")
    jobs = jobs[(log.exclude_reason == None)[jobs.index]]  # noqa: E711 (element by element)
    reason = pd.Series(log.reject_reason, dtype=object)[jobs.index]
    done.read += len(jobs)
    done.refused += Counter(reason.dropna())
    good = _without_outdated(store, jobs[reason.isna()])
    for month, rows in good.groupby(good["submit"].dt.strftime("%Y-%m")):
        stored = arrow_table(rows)
        store.merge("jobs", str(month), stored, stored.select(_JOB_KEY), _ORDER)
    _keep_refused(store, jobs.assign(reason=reason))
    still_open = good[good["end"].isna() & good["status"].isin(["pending", "running"])]
    done.seen.update(still_open[_JOB_KEY].itertuples(index=False, name=None))


def _without_outdated(store: Store, jobs: pd.DataFrame) -> pd.DataFrame:
    """Rows but those of an older file that show a run as open which the store knows has ended."""
    is_open = jobs["end"].isna()
    first = jobs.loc[is_open, "submit"].min()
    query = f"{_KEYS_WHERE} \"end\" IS NOT NULL AND submit >= '{first.isoformat()}'"
    ended = None if pd.isna(first) else store.query("jobs", query)
    if ended is None:
        return jobs
    known = pd.MultiIndex.from_frame(ended.to_pandas().astype({"submit": TIME}))
    return jobs[~(is_open & pd.MultiIndex.from_frame(jobs[_JOB_KEY]).isin(known))]


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
    found = store.query("jobs", f"{_KEYS_WHERE} \"end\" IS NULL AND status IN ('pending', 'running')")
    return set() if found is None else set(found.to_pandas().itertuples(index=False, name=None))


def _count(store: Store) -> int:
    found = store.query("jobs", "SELECT count(*) AS n FROM stored")
    return 0 if found is None else int(found["n"][0].as_py())
