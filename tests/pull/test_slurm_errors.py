"""What stops a pull from Slurm: one sentence that says what to do. What commands print is of a real cluster (22.05)."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.pull import slurm
from gpudemand.store import read_store
from tests.pull.conftest import HERE, stored

pytestmark = pytest.mark.usefixtures("quick_stores")
LAST = "2026-11-22 19:20"


def refused(cluster, into, **options) -> str:
    """The sentence with which a pull is refused; the store has nothing then."""
    with pytest.raises(InputError) as caught:
        cluster.pull(into, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.count(". ") <= 1
    assert message.endswith(".")
    assert not list(into.glob("jobs/*"))
    return message


@pytest.mark.parametrize(
    ("answer", "cause", "advice"),
    [
        (
            "no_config",
            "Could not establish a configuration source|DNS SRV lookup failed",
            "slurm.conf .* in SLURM_CONF",
        ),
        ("no_file", "cannot stat file /etc/slurm/slurm.conf", "slurm.conf .* in SLURM_CONF"),
        ("unknown_host", "Name or service not known", "correct AccountingStorageHost in slurm.conf"),
        ("refused", "Connection refused", "slurmdbd does not answer: start it, or try again later"),
        ("no_munge", "Did you start munged", "start munge on this machine"),
        ("other_key", "authentication error", "the munge key of the cluster, and set its clock"),
        ("other_clock", "authentication error", "the munge key of the cluster, and set its clock"),
        ("unknown_field", 'Invalid field requested: "Planned2"', "older than 20.11"),
        ("unknown", "Something new", "run sacct by hand"),
    ],
)
def test_a_failing_command_is_one_sentence(cluster, tmp_path, answer, cause, advice):
    cluster.at(LAST)
    file = HERE / "fixtures" / "slurm_errors" / f"{answer}.txt"
    cluster.script("sacct", f"cat {file} >&2; exit 1")
    message = refused(cluster, tmp_path / "store")
    assert pd.Series(message).str.contains(rf"^sacct failed \(.*(?:{cause}).*\): .*{advice}", regex=True).all(), message


def test_a_command_that_says_nothing(cluster, tmp_path):
    cluster.at(LAST)
    cluster.script("sacct", "exit 3")
    assert refused(cluster, tmp_path / "store").startswith("sacct failed (exit status 3): run sacct by hand")


def test_a_failure_in_the_middle_keeps_what_was_pulled(cluster, tmp_path):
    cluster.pull(tmp_path / "store", "2026-11-22 19:03:05")
    before = sorted(path.name for path in (tmp_path / "store").glob("*/*"))
    script = (cluster.bin / "sacct").read_text().splitlines()[1]
    cluster.script("sacct", f'case "$*" in *-e*) {script};; *) echo refused >&2; exit 1;; esac')
    with pytest.raises(InputError, match="sacct failed"):
        cluster.pull(tmp_path / "store")
    assert sorted(path.name for path in (tmp_path / "store").glob("*/*")) == before


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: text[:-2],
        lambda text: text[:20],
        lambda text: b"",
        lambda text: text[: text.rindex(b"|")] + b"\n",
    ],
)
def test_an_answer_that_is_cut_off_is_not_taken(cluster, tmp_path, monkeypatch, cut):
    store = tmp_path / "store"
    cluster.pull(store, "2026-11-22 19:03:05")
    before, jobs = read_store(store).about, len(stored(store))
    whole = slurm.call

    def call(words, answer):
        whole(words, answer)
        answer.write_bytes(cut(answer.read_bytes()))

    monkeypatch.setattr(slurm, "call", call)
    with pytest.raises(InputError, match=r"^sacct's answer ends within a line.*, and pull again\.$"):
        cluster.pull(store, LAST)
    assert (read_store(store).about, len(stored(store))) == (before, jobs)  # so the next pull reads the period again


def test_a_field_that_this_slurm_lacks(cluster, tmp_path):
    cluster.at(LAST)
    cluster.script("sacct", "echo JobID User State")
    assert refused(cluster, tmp_path / "store") == "this sacct knows no field JobIDRaw; Slurm 20.11 or newer is needed."


def test_fields_that_are_not_needed_may_be_missing(cluster, tmp_path):
    cluster.at(LAST)
    script = (cluster.bin / "sacct").read_text().splitlines()[1].removeprefix("exec ")
    cluster.script("sacct", f'case "$*" in -e) {script} | sed "s/TRESUsageInTot//; s/QOS//";; *) {script};; esac')
    assert cluster.pull(tmp_path / "store").read == 87


@pytest.mark.parametrize("name", ["labb", "lab,nowhere"])
def test_a_cluster_that_slurm_does_not_know(cluster, tmp_path, name):
    cluster.at(LAST)  # sacct itself answers with no rows and the status 0
    message = refused(cluster, tmp_path / "store", clusters=name)
    assert message.startswith(f"Slurm's accounting has no cluster {name.split(',')[-1]!r}.")
    assert message.endswith("It has lab.")


def test_clusters_that_slurm_knows(cluster, tmp_path):
    assert cluster.pull(tmp_path / "store", LAST, clusters="lab").read > 0
    cluster.script("sacctmgr", "exit 1")
    assert cluster.pull(tmp_path / "store", clusters="nowhere").read > 0


@pytest.mark.parametrize("minutes", [-6, 6, 100_000])
def test_a_clock_that_is_off(cluster, tmp_path, minutes):
    cluster.at(LAST)
    theirs = pd.Timestamp(LAST, tz="UTC") + pd.Timedelta(minutes=minutes)
    cluster.script("scontrol", f"echo Configuration data as of {int(theirs.timestamp())}")
    assert refused(cluster, tmp_path / "store") == (
        "the clock of this machine says 2026-11-22 19:20 and that of Slurm's controller "
        f"{theirs:%Y-%m-%d %H:%M} (UTC); set the one that is off."
    )


@pytest.mark.parametrize("script", ["exit 1", "echo slurm.conf", "echo Configuration data as of 1795375500"])
def test_a_clock_that_is_not_known_or_near_is_fine(cluster, tmp_path, script):
    cluster.at(LAST)
    cluster.script("scontrol", script)
    assert cluster.pull(tmp_path / "store").read > 0


def test_a_clock_that_was_set_back(cluster, tmp_path):
    cluster.pull(tmp_path / "store", LAST)
    with pytest.raises(InputError, match=r"pulled until 2026-11-22 19:20:00, but the clock of this machine"):
        cluster.pull(tmp_path / "store", "2026-11-22 12:00")


def test_no_slurm_here(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no sacct on this machine.*--command-only"):
        slurm.pull_slurm(tmp_path / "store")
