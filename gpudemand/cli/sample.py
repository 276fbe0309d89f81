"""The bundled sample, and the question that the shell asks of it where no log is given."""

from __future__ import annotations

import pandas as pd

from gpudemand.datasets.load import load_jobs_sample
from gpudemand.planning.queue.simulate import simulate_queue
from gpudemand.study.report import StudyOptions

#: What is asked of the sample where nothing else is.
SAMPLE: StudyOptions = {"installed": 600.0, "lead_time": "30D", "wait": "1h"}


def sample_log() -> pd.DataFrame:
    """The bundled sample as its jobs would have run on 600 GPUs: as drawn, none of them ever waits for another."""
    return simulate_queue(load_jobs_sample(), 600)
