"""Jobs that a faster GPU does not shorten, told from the log."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.planning import fixed_length


def log(hours, **columns):
    start = pd.Timestamp("2026-01-05 08:00", tz="UTC") + pd.to_timedelta(np.arange(len(hours)), unit="h")
    end = start + pd.to_timedelta(hours, unit="h")
    return pd.DataFrame({"user": "ada", "start": start, "end": end, "gpus": 1.0}).assign(**columns)


def test_jobs_that_end_by_their_time_limit():
    jobs = log([24.0, 23.6, 23.0, 30.0, 3.3], requested_time=86400.0)
    assert fixed_length(jobs).tolist() == [True, True, False, False, False]
    status = ["timeout", "completed", "failed", "cancelled", "timeout"]
    assert fixed_length(jobs.drop(columns="requested_time").assign(status=status)).tolist() == [
        True,
        *[False] * 3,
        True,
    ]


@pytest.mark.parametrize("column", ["name", "partition", "qos"])
def test_sessions_are_told_by_the_words_of_their_names(column):
    sessions = ["jupyter-ada", "Notebook", "sys/dashboard/sys/vscode", "interactive", "bash", "gpu_interactive_small"]
    others = ["train_resnet", "bash_train.sh", "run.bash", "noninteractively", "codes", None]
    jobs = log(np.arange(1.3, 13.3), **{column: [*sessions, *others]})
    assert fixed_length(jobs).tolist() == [True] * len(sessions) + [False] * len(others)


def test_users_all_of_whose_jobs_run_as_many_hours():
    same = log([8.0, 8.01, 7.98, 8.0, 8.0])
    assert fixed_length(same).all()
    assert not fixed_length(same.iloc[:4]).any()
    assert not fixed_length(log([8.0, 8.01, 7.98, 8.0, 5.0])).any()
    assert not fixed_length(log([7.5] * 5)).any()
    # A session that still runs tells nothing yet.
    open_end = same.assign(end=same["end"].where(same.index < 4))
    assert not fixed_length(open_end).any()
    many = pd.concat([same, open_end.iloc[4:]], ignore_index=True)
    assert fixed_length(many).tolist() == [True] * 5 + [False]


def test_none_where_none_are():
    rng = np.random.default_rng(0)
    hours = rng.lognormal(0.0, 1.0, 500)
    jobs = log(hours, requested_time=hours * 3600 * rng.uniform(1.1, 5.0, 500), status="completed", name="train")
    assert not fixed_length(jobs.assign(user=rng.choice(list("abcdef"), 500))).any()


def test_a_table_that_is_no_log_is_refused():
    with pytest.raises(InputError):
        fixed_length(pd.DataFrame({"a": [1]}))
