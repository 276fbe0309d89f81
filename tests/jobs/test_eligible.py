"""Jobs of Slurm wait from when they are eligible, which a dependency or a stated begin delays."""

from __future__ import annotations

import pandas as pd
import pytest

import gpudemand as gd

ROWS = """JobID|User|Submit|Eligible|Start|End|State|AllocTRES
1|ada|2026-03-01T00:00:00|2026-03-01T06:00:00|2026-03-01T06:01:00|2026-03-01T07:00:00|COMPLETED|gres/gpu=1
2|ada|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T06:01:00|2026-03-01T07:00:00|COMPLETED|gres/gpu=1
3|ada|2026-03-01T00:00:00|Unknown|2026-03-01T06:01:00|2026-03-01T07:00:00|COMPLETED|gres/gpu=1
4|ada|2026-03-01T00:00:00|2026-03-01T08:00:00|2026-03-01T06:01:00|2026-03-01T07:00:00|COMPLETED|gres/gpu=1
5|ada|2026-03-01T00:00:00|2026-03-01T05:00:00|Unknown|Unknown|PENDING|gres/gpu=1
"""


def test_a_wait_begins_when_a_job_is_eligible(tmp_path):
    (tmp_path / "log.txt").write_text(ROWS)
    jobs = gd.read_jobs(tmp_path / "log.txt", format="sacct", tz="UTC").set_index("job_id")
    hours = (jobs["submit"] - pd.Timestamp("2026-03-01", tz="UTC")) / pd.Timedelta("1h")
    # The fourth started before it was eligible, as parts of a resized job may: it counts from its submission.
    assert hours.to_dict() == {"1": 6.0, "2": 0.0, "3": 0.0, "4": 0.0, "5": 5.0}


WAITING = """JobIDRaw|JobID|Cluster|User|Submit|Eligible|Start|End|State|ReqTRES|AllocTRES|Reason
1|1|c|ada|2026-03-01T00:00:00|Unknown|2026-03-01T06:00:00|2026-03-03T07:00:00|COMPLETED|gres/gpu=1|gres/gpu=1|None
3|4_1|c|ada|2026-03-02T00:00:00|Unknown|2026-03-02T06:00:00|2026-03-03T07:00:00|COMPLETED|gres/gpu=1|gres/gpu=1|None
"""


@pytest.mark.filterwarnings("ignore::gpudemand.RejectedRowsWarning")
@pytest.mark.parametrize(
    ("job_id", "reason", "jobs"),
    [("5", "Priority", 3), ("5", "JobHeldUser", 2), ("5", "(Dependency)", 2), ("4_[1-3]", "Resources", 4)],
)
def test_what_waits_in_a_store_counts_as_in_the_table_of_it(job_id, reason, jobs, tmp_path):
    row = f"4|{job_id}|c|ada|2026-03-01T00:00:00|Unknown|Unknown|Unknown|PENDING|gres/gpu=8||{reason}\n"
    (tmp_path / "log.txt").write_text(WAITING + row)
    gd.pull_slurm(tmp_path / "store", files=[tmp_path / "log.txt"], tz="UTC")
    logs = tmp_path / "store", gd.read_jobs(tmp_path / "store")
    for options in ({"value": "jobs"}, {"value": "wanted"}, {"pending": True}):
        found, expected = (gd.usage_series(log, **options) for log in logs)
        assert found["y"].tolist() == pytest.approx(expected["y"].tolist())
        assert options != {"value": "jobs"} or found["y"].sum() == jobs
