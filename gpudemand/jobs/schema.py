"""Schema of the canonical job table: its columns and words, and the rules that make a row usable."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gpudemand._array import STRING

TIME = "datetime64[ns, UTC]"

#: Column -> dtype. Times are UTC; ``requested_time`` is in seconds; NaN, NaT where unknown.
COLUMNS: dict[str, object] = {
    "job_id": STRING,
    "user": STRING,
    "group": STRING,
    "cluster": STRING,
    "submit": TIME,
    "start": TIME,
    "end": TIME,
    "gpus": "float64",
    "gpu_type": STRING,
    "status": STRING,
    "requested_time": "float64",
    "used_gpu_seconds": "float64",
}

#: Further columns of text by which jobs can be split, where a log has them.
OTHER_KEYS = ("partition", "qos")

#: ``pending`` and ``running`` jobs have no end yet; every other status is final. A run is ``requeued`` that its user or
#: an administrator put back into the queue, and ``resized`` is the part of a run before it went on with other GPUs.
STATUSES = (
    *("pending", "running", "completed", "failed", "cancelled", "timeout", "out_of_memory", "preempted"),
    *("requeued", "resized"),
)
FINISHED = STATUSES[2:]

#: Sentences on what is doubtful in a log, in the ``attrs`` of its table.
DOUBTS = "doubts"
#: Times in ISO form before and after which a log is not complete, in the ``attrs`` of its table.
COMPLETE_FROM, COMPLETE_UNTIL = "complete_from", "complete_until"
#: Further column of a reader: until when a record that has no end yet shows its job as running.
RAN_UNTIL = "ran_until"

KINDS = ("measured", "public trace", "synthetic")

#: More GPUs in one job are a corrupt number.
MAX_GPUS = 1_000_000
EARLIEST = pd.Timestamp("1985-01-01", tz="UTC")
LATEST = pd.Timestamp("2200-01-01", tz="UTC")
OUTSIDE = "time outside 1985 to 2200"


#: What times in whole seconds are off at most.
ROUNDED = pd.Timedelta("1s")
_ROUNDED_US = 1_000_000


def microseconds(time: pd.Timestamp) -> int:
    """Microseconds since 1970."""
    return int(time.as_unit("us").asm8.astype("int64"))


_TIMES = "submit_us, start_us, end_us"

#: Reason why a row cannot be counted -> SQL condition, with times in microseconds since 1970. The first that holds is
#: given; tables in memory and files on disk are held to the same rules.
RULES = {
    "no submit or start time": "submit_us IS NULL AND start_us IS NULL",
    OUTSIDE: f"least({_TIMES}) < {microseconds(EARLIEST)} OR greatest({_TIMES}) > {microseconds(LATEST)}",
    "end before start": "end_us < coalesce(start_us, submit_us)",
    "start before submit": f"start_us <= submit_us - {_ROUNDED_US}",
    "negative number of GPUs": "gpus < 0",
    f"more than {MAX_GPUS:,} GPUs": f"gpus > {MAX_GPUS}",
}
#: Finished jobs whose end is unknown would otherwise count as running until the end of the log.
UNKNOWN_END = f"end_us IS NULL AND status IN {FINISHED}"
#: Reasons why a row has a part that cannot be counted; `usage_series` states their number in its ``attrs``.
UNKNOWN_RULES = {"unknown number of GPUs": "gpus IS NULL", "finished without an end time": UNKNOWN_END}


def first_reason(rules: Mapping[str, str]) -> str:
    """SQL expression of the first reason whose condition holds, NULL if none does."""
    return f"CASE {' '.join(f'WHEN {condition} THEN {reason!r}' for reason, condition in rules.items())} END"


UNREADABLE = "an unreadable cell"
DUPLICATE = "duplicate job id"
#: What identifies one run of one job.
RUN = "cluster, job_id, start_us, CASE WHEN start_us IS NULL THEN submit_us END"
#: Equal where two rows are one run of one job: of 100 million, they fit into memory where names and times do not.
HASHES = "SELECT hash({of}) AS hash FROM {relation} WHERE job_id IS NOT NULL"
#: Rows beyond the first of one run of one job.
COUNT_DUPLICATES = (
    "SELECT coalesce(sum(n - 1), 0) FROM "
    f"(SELECT count(*) AS n FROM {{relation}} WHERE job_id IS NOT NULL GROUP BY {RUN})"
)
