"""`pull_slurm`: Slurm's accounting into a store."""

from __future__ import annotations

import getpass
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

from gpudemand._validation import LOGGER, InputError, nearest, shorten
from gpudemand.jobs.columns import LogColumns
from gpudemand.jobs.files import NO_LIMITS, as_file, existing_path
from gpudemand.jobs.read import read_rows
from gpudemand.jobs.schema import TIME
from gpudemand.jobs.slurm import EVENT_FIELDS, open_sacct, read_events, shards_per_gpu
from gpudemand.jobs.times import TimeParser, parse_timestamp
from gpudemand.store import Store, arrow_table, covered, open_store, read_store

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
    """Return the error of a command: the line that names the cause, and what to do."""
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
    """Words of a call of ``sacct`` whose answer has a row for every run of a job and for every step."""
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


_CLUSTERS = ("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster")


def _check_clusters(clusters: str | None) -> None:
    """Raise for a name that no cluster of the accounting has."""
    if clusters in (None, "all"):
        return
    answer = _answer(*_CLUSTERS)
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
#: Whose runs they are: what a user may see in Slurm is all of a user's in an account, or nothing.
_OWNER = ["cluster", "group", "user"]
_Key = tuple[object, ...]
_ORDER = ["submit", "cluster", "job_id_raw"]
#: Records may reach Slurm's database late, when it was down; so much is read again.
_OVERLAP = pd.Timedelta("2D")
#: Slurm purges runs after months, if at all.
_RECENT = pd.Timedelta("28D")


@dataclass
class SlurmPull:
    """What one pull did.

    `gone`: runs that the store had as open, and that Slurm does not know any more; they were removed. `refused`: reason
    -> rows that cannot be counted. `hidden`: cluster -> users whose runs the store holds and this pull was not shown
    any of; nothing of them is removed, and the next pull reads this one's period again.
    """

    read: int = 0
    new: int = 0
    gone: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    seen: set[_Key] = field(default_factory=set, repr=False)
    owners: set[_Key] = field(default_factory=set, repr=False)


def pull_slurm(
    into: Path,
    *,
    since: object = None,
    clusters: str | None = None,
    files: Sequence[Path] = (),
    tz: object = None,
    shards_per_gpu: float | None = None,
    progress: Callable[[str], None] | None = None,
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
    progress : callable, optional
        Called with a text before each step; by default the logger ``gpudemand``.

    Raises
    ------
    InputError
        If a command fails, Slurm knows no such cluster or another time, or the store or a file cannot be used.
    """
    progress = progress or LOGGER.info
    fields = () if files else known_fields()
    if not files:
        _check_clock(_now())
        _check_clusters(clusters)
    shards = shards_per_gpu or ({} if files else shards_by_node()) or None
    done = SlurmPull()
    with open_store(Path(into)) as store:
        before = _count(store)

        def read(select: Sequence[str], cluster: str | None) -> None:
            with store.scratch("sacct.psv") as answer:
                call(sacct_command(fields, select, cluster), answer)
                _check_answer(answer, len(fields))
                _take(store, done, answer, shards)

        if files:
            _take_files(store, done, files, shards, tz, progress)
        else:
            for name, option in _asked(clusters).items():
                _pull_cluster(store, done, read, (name, option), since, progress)
            progress("Reading the GPUs of nodes")
            keep_events(store, _answer(*events_command(clusters)) or "")
        done.new = _count(store) - before + done.gone
        counts = {"read": done.read, "new": done.new, "gone": done.gone, "refused": dict(done.refused)}
        store.about.setdefault("history", []).append({"source": SOURCE, "at": _now().isoformat(), **counts})
        store.commit()
    return done


def slurm_commands(into: Path, *, since: object = None, clusters: str | None = None) -> list[str]:
    """Return the commands that `pull_slurm` would run, for a shell, each with the file to print into.

    >>> print(slurm_commands(Path("absent"), since="2026-03-01")[0])  # doctest: +SKIP
    TZ=UTC SLURM_TIME_FORMAT=%s sacct -a -D -P -s ... -S 2026-03-01T00:00:00 ... > sacct-2026-03-01.psv
    """
    fields = (*NEEDED, *OPTIONAL)
    store = read_store(into) if into.exists() else Store(into, {"pulls": {}}, {})
    known = [source.removesuffix(_source("")) for source in _states(store) if source.endswith(_source(""))]
    names = [None] if clusters is None else [name.strip() for name in clusters.split(",")]
    commands = {}
    for name in names:
        of = f"-{name}" if len(names) > 1 else ""
        # Without a name it is the colleague's own cluster, which is the one that the store has if it has only one.
        own = known[0] if name is None and len(known) == 1 else str(name).lower()
        for begin, end in _windows(store, _source(own), since):
            commands[f"sacct{of}-{begin:%Y-%m-%d}"] = sacct_command(fields, ended_or_open(begin, end), name)
        for number, select in enumerate(by_id(str(key[1]) for key in _runs(store, own, _OPEN))):
            commands[f"sacct{of}-open-{number}"] = sacct_command(fields, select, name)
    commands["sacctmgr-events"] = events_command(clusters)
    return [f"{in_shell(words)} > {name}.psv" for name, words in commands.items()]


def _states(store: Store) -> dict[str, dict[str, str]]:
    """Period that was read of each source: a cluster as a user of this machine sees it, or as files show it."""
    states: dict[str, dict[str, str]] = store.about["pulls"].setdefault(SOURCE, {}).setdefault("sources", {})
    return states


def _source(cluster: str, viewer: str | None = None) -> str:
    """Name of a source; without a viewer, of files."""
    return f"{cluster} as seen by {viewer}" if viewer else f"{cluster} in files"


def _viewer() -> str:
    """Who asks, on whom it depends what Slurm shows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def _asked(clusters: str | None) -> dict[str, str | None]:
    """Clusters to pull: their names, and how sacct is asked for them."""
    if clusters is None:
        return {_own_cluster(): None}
    names = (_answer(*_CLUSTERS) or "").split() if clusters == "all" else []
    names = names or [name.strip() for name in clusters.split(",")]
    return {name.lower(): name for name in names}


def _own_cluster() -> str:
    """Name of the cluster that the commands speak to; empty where nobody can tell."""
    found = re.search(r"^ClusterName\s*=\s*(\S+)", _answer("scontrol", "show", "config") or "", re.MULTILINE)
    if found:
        return found[1].lower()
    now = _now()
    rows = _answer(*sacct_command(["Cluster"], ended_or_open(now - _OVERLAP, now))) or ""
    names = set(rows.lower().split()[1:])
    return names.pop() if len(names) == 1 else ""


def _windows(store: Store, source: str, since: object) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    now = _now()
    state = _states(store).get(source)
    first = None if since is None else parse_timestamp(since, "UTC", "since").tz_convert("UTC")
    begin = first or now.normalize().replace(day=1) - pd.DateOffset(years=1)
    last = max((pd.Timestamp(each["until"]) for each in _states(store).values()), default=now)
    if last > now:
        clock = f"the clock of this machine says {now:%Y-%m-%d %H:%M:%S} UTC"
        raise InputError(f"{str(store.path)!r} was pulled until {last:%Y-%m-%d %H:%M:%S}, but {clock}; set it.")
    if state and (first is None or first >= pd.Timestamp(state["since"])):
        begin = max(pd.Timestamp(state["until"]) - _OVERLAP, pd.Timestamp(state["since"]))
    if begin >= now:
        raise InputError(f"since={begin} lies in the future.")
    return months(begin, now)


def _now() -> pd.Timestamp:
    return pd.Timestamp.now(tz="UTC").floor("s")


def _pull_cluster(
    store: Store,
    done: SlurmPull,
    read: Callable[[Sequence[str], str | None], None],
    cluster: tuple[str, str | None],
    since: object,
    progress: Callable[[str], None],
) -> None:
    """Read the windows of one cluster, and the runs that were open and are in none of them."""
    (name, option), states = cluster, _states(store)
    source = _source(name, _viewer())
    windows, state = _windows(store, source, since), states.get(source)
    expected = _newest_runs(store, name, state)
    stored = {str(owner[2]) for owner in _runs(store, name, "true", newest=True).values()}
    #: Those whom this viewer was not shown yet, and those shown since, whose earlier runs are not read yet.
    unseen, new = (
        {*filter(None, state.get(key, "").split(","))} if state else of_first
        for key, of_first in (("unseen_users", set(stored)), ("new_users", set()))
    )
    users = stored - new - unseen

    def note(end: pd.Timestamp) -> None:
        """Count the time until `end` as read, if the pull was shown all that an earlier one was."""
        if done.owners >= set(expected.values()):
            states[source] = covered(states.get(source, {}), windows[0][0], end)
        shown = {str(owner[2]) for owner in done.owners if str(owner[0]).lower() == name and owner[2]}
        new.update(shown - users if state else ())
        unseen.difference_update(shown)
        states[source] |= {"new_users": ",".join(sorted(new)), "unseen_users": ",".join(sorted(unseen))}
        store.commit()

    for begin, end in windows:
        progress(f"Reading {begin:%Y-%m-%d} to {end:%Y-%m-%d}{f' of {name}' if name else ''}")
        read(ended_or_open(begin, end), option)
        note(end)
    if state and new:
        only = ("-u", ",".join(sorted(new))) if len(users) > 1 else ()
        for begin, end in months(pd.Timestamp(state["since"]), windows[-1][1]):
            progress(f"Reading {begin:%Y-%m-%d} to {end:%Y-%m-%d} of new users")
            read((*ended_or_open(begin, end), *only), option)
        users |= new
        new.clear()
    progress("Reading open jobs again")
    still = _read_open(store, done, read, cluster, expected)
    note(windows[-1][1])
    _remove_gone(store, done, name, still)
    hidden = {owner for owner in (*still.values(), *expected.values()) if owner not in done.owners}
    if hidden:
        done.hidden[name] = sorted({str(owner[2]) for owner in hidden})


def _read_open(
    store: Store,
    done: SlurmPull,
    read: Callable[[Sequence[str], str | None], None],
    cluster: tuple[str, str | None],
    expected: Mapping[_Key, _Key],
) -> dict[_Key, _Key]:
    """Read, and return with owners, the runs that were open and in no window, that wait, or that are `expected`."""
    name, option = cluster
    still = {key: owner for key, owner in _runs(store, name, _OPEN).items() if key not in done.seen}
    unseen = [key for key, owner in expected.items() if owner not in done.owners]
    # Also those that are held, which no window lists.
    waiting = (_answer("squeue", "-h", "-a", *_on(option), "-t", "PD", "-o", "%A") or "").split()
    for select in by_id([*(str(key[1]) for key in (*still, *unseen)), *filter(str.isdecimal, waiting)]):
        read(select, option)
        store.commit()
    return still


def _newest_runs(store: Store, cluster: str, state: Mapping[str, str] | None) -> dict[_Key, _Key]:
    """Newest run of each owner of the last weeks that an earlier pull was shown, and this one must be, too."""
    if state is None:
        return {}
    recent = f"submit >= '{(pd.Timestamp(state['until']) - _RECENT).isoformat()}'"
    return _runs(store, cluster, f"{recent} AND submit < '{state['until']}'", newest=True)


def _remove_gone(store: Store, done: SlurmPull, cluster: str, still: Mapping[_Key, _Key]) -> None:
    """Remove the runs that were open, and that Slurm has forgotten: it has shown others of their owners."""
    left = (still.keys() & _runs(store, cluster, _OPEN).keys()) - done.seen
    gone = [key for key in left if still[key] in done.owners]
    frame = pd.DataFrame(sorted(gone), columns=_JOB_KEY).astype({"submit": TIME})
    for month, keys in frame.groupby(frame["submit"].dt.strftime("%Y-%m")):
        stored = arrow_table(keys)
        store.merge("jobs", str(month), stored.slice(0, 0), stored, _ORDER)
    done.gone += len(gone)


def _take_files(
    store: Store,
    done: SlurmPull,
    files: Sequence[Path],
    shards: float | Mapping[str, float] | None,
    tz: object,
    progress: Callable[[str], None],
) -> None:
    """Put files into the store, and note which time of each cluster they hold without a hole."""
    periods = []
    for given in files:
        progress(f"Reading {given.name}")
        with as_file(existing_path(given), NO_LIMITS) as file:
            _check_whole(file, given.name)
            if (events := events_of_file(file)) is not None:
                keep_events(store, events)
                continue
            jobs = _take(store, done, file, shards, tz)
        if jobs is None:
            continue
        _check_zone(store, jobs, given.name)
        newest = jobs[["submit", "start", "end"]].max(axis=1)
        for name, rows in jobs.groupby(jobs["cluster"].str.lower()):
            # A run that began long before the file's window does not say when that began; ends do.
            begin, end = rows["end"].min(), newest[rows.index].max()
            source = _source(str(name))
            until = _states(store).get(source, {"until": begin})["until"]
            stored = _runs(store, str(name), f"\"end\" BETWEEN '{begin}' AND '{until}'") if pd.notna(begin) else {}
            # A file that lacks runs of its time is of somebody who may not see them.
            if pd.notna(begin) and set(_tuples(rows[_JOB_KEY])).issuperset(stored):
                periods.append((begin, end, source))
    for begin, end, source in sorted(periods):
        _states(store)[source] = covered(_states(store).get(source, {}), begin, end)


def _check_whole(file: Path, name: str) -> None:
    """Raise for a file that ends within a line, whose last number may have lost its end."""
    with file.open("rb") as content:
        content.seek(max(file.stat().st_size - 1, 0))
        if content.read() not in (b"\n", b""):
            raise InputError(f"{name!r} ends within a line, as if it had been cut off; copy it again.")


def _check_answer(file: Path, n_fields: int) -> None:
    """Raise for an answer of sacct without its end; its status is 0 also where the disk was full."""
    with file.open("rb") as content:
        content.seek(max(file.stat().st_size - _LONGEST_LINE, 0))
        end = content.read()
    last = end[end.rfind(b"\n", 0, -1) + 1 :]
    if not last.endswith(b"\n") or last.count(b"|") != n_fields - 1:
        raise InputError(
            "sacct's answer ends within a line, as if it had been cut off, and does not count; see whether the disk of "
            "the store is full, and pull again."
        )


#: In bytes; the fields that are asked for hold no text of users.
_LONGEST_LINE = 1 << 20


def _check_zone(store: Store, jobs: pd.DataFrame, name: str) -> None:
    """Raise if a file has runs of the store at other times, as if read in another zone: both would count."""
    found = store.query("jobs", 'SELECT cluster, job_id_raw, submit, "end" FROM stored WHERE "end" IS NOT NULL')
    if found is None:
        return
    both = jobs.merge(found.to_pandas(), on=["cluster", "job_id_raw"], suffixes=("", "_stored"))
    apart = both["submit"] - both["submit_stored"]
    of_zones = (apart == both["end"] - both["end_stored"]) & (apart % _ZONES_APART == pd.Timedelta(0))
    shifted = apart[of_zones & (apart != pd.Timedelta(0))]
    if len(shifted) >= _SAME_RUNS:
        raise InputError(
            f"{len(shifted):,} runs of {name!r} are in the store at times that are apart by whole quarters of an hour, "
            "and would count twice: pass the zone of its times with tz= (--tz), or read it into a new store."
        )


#: All zones of today are a multiple of this apart; of requeued runs, hardly a few are by chance, to the second.
_ZONES_APART, _SAME_RUNS = pd.Timedelta("15min"), 3


def _take(
    store: Store, done: SlurmPull, file: Path, shards: float | Mapping[str, float] | None, tz: object = "UTC"
) -> pd.DataFrame | None:
    """Put what a command printed into the store, and return its runs."""
    table = open_sacct(file, NO_LIMITS)
    done.refused += Counter(table.bad.values())
    if "JobIDRaw" not in table.names:
        raise InputError(f"{file.name!r} has no JobIDRaw, which tells runs apart; use the commands of --command-only.")
    if not len(table.lines):
        return None
    log = LogColumns(table, TimeParser.from_arguments(tz, None, file.name), file, shards)
    further = {"job_id_raw": log.text("JobIDRaw"), "node_list": log.text("NodeList")}
    further["tres"] = log.text("AllocTRES").fillna(log.text("ReqTRES"))
    jobs = read_rows(log, "sacct", "measured")
    jobs = jobs.assign(cluster=jobs["cluster"].fillna(""), **further).drop_duplicates(_JOB_KEY, keep="last")
    jobs = jobs[(log.exclude_reason == None)[jobs.index]]  # noqa: E711 (element by element)
    reason = pd.Series(log.reject_reason, dtype=object)[jobs.index]
    done.read += len(jobs)
    done.refused += Counter(reason.dropna())
    good = _without_outdated(store, jobs[reason.isna()])
    for month, rows in good.groupby(good["submit"].dt.strftime("%Y-%m")):
        stored = arrow_table(rows)
        store.merge("jobs", str(month), stored, stored.select(_JOB_KEY), _ORDER)
    _keep_refused(store, jobs.assign(reason=reason))
    still_open = good["end"].isna() & good["status"].isin(["pending", "running"])
    done.seen.update(_tuples(jobs.loc[reason.notna() | still_open.reindex(jobs.index, fill_value=False), _JOB_KEY]))
    done.owners.update(_tuples(jobs[_OWNER].drop_duplicates()))
    return jobs


def _without_outdated(store: Store, jobs: pd.DataFrame) -> pd.DataFrame:
    """Rows but those of an older file that show a run as open which the store knows has ended."""
    is_open = jobs["end"].isna()
    first = jobs.loc[is_open, "submit"].min()
    query = f"SELECT {', '.join(_JOB_KEY)} FROM stored WHERE \"end\" IS NOT NULL AND submit >= '{first.isoformat()}'"
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


_OPEN = "\"end\" IS NULL AND status IN ('pending', 'running')"


def _runs(store: Store, cluster: str, where: str, *, newest: bool = False) -> dict[_Key, _Key]:
    """Runs of a cluster with their owners; with `newest` one of each owner."""
    name = cluster.replace("'", "''")
    of = "true" if cluster == "all" else f"lower(cluster) = '{name}'"
    names = ", ".join(f'"{column}"' for column in _OWNER)
    keys = ", ".join(f"max_by({column}, submit) AS {column}" if newest else column for column in _JOB_KEY)
    sql = f"SELECT {names}, {keys} FROM stored WHERE {of} AND ({where})" + " GROUP BY ALL" * newest
    found = store.query("jobs", sql)
    rows = list(_tuples(found.to_pandas().astype({"submit": TIME}))) if found is not None else []
    return {row[len(_OWNER) :]: row[: len(_OWNER)] for row in rows}


def _tuples(rows: pd.DataFrame) -> Iterator[_Key]:
    """Rows as tuples, None where something is missing."""
    return rows.astype(object).where(rows.notna(), None).itertuples(index=False, name=None)


def _count(store: Store) -> int:
    found = store.query("jobs", "SELECT count(*) AS n FROM stored")
    return 0 if found is None else int(found["n"][0].as_py())
