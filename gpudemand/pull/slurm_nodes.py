"""GPUs of Slurm's nodes in a store: what clusters had when, and which nodes were down."""

from __future__ import annotations

from pathlib import Path

from gpudemand.slurm.nodes import EVENT_FIELDS, read_events
from gpudemand.store import Store, arrow_table

TABLE = "nodes"
_KEY = ["cluster", "node", "begin"]
_HEADER = "|".join(EVENT_FIELDS[:2])


def events_of_file(file: Path) -> str | None:
    """Text of a file that holds the answer of ``sacctmgr``; None of any other."""
    with file.open("rb") as lines:
        if not lines.readline(1000).startswith(_HEADER.encode()):
            return None
    return file.read_text(encoding="utf-8", errors="replace")


def keep_events(store: Store, answer: str) -> None:
    """Put the events of clusters and nodes into the store; those that Slurm has purged since stay."""
    events = read_events(answer)
    if len(events):
        rows = arrow_table(events)
        store.merge(TABLE, "all", rows, rows.select(_KEY), [*_KEY, "gpu_type"])
