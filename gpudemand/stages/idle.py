"""GPU-hours that were held and hardly used, by everything that a source can be split by."""

from __future__ import annotations

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.stages.sources.source import Source

_KEYS = ("user", "group", "partition", "namespace")


def idle_hours(source: Source) -> dict[str, pd.DataFrame]:
    """GPU-hours held at little utilization, by user, group and partition, or by namespace.

    Parameters
    ----------
    source : Source
        Of its settings, the price of a reserved GPU-hour is read.

    Returns
    -------
    dict of str to DataFrame
        By the key, each with a column of its name and those of `gpudemand.usage.idle.idle_table`.

    Raises
    ------
    InputError
        If the utilization is not known.
    """
    keys = [key for key in _KEYS if source.names(key)]
    if not keys:
        raise InputError("the log names no users, groups or partitions, so it is not known whose GPUs were idle.")
    tables = {key: source.idle(key).rename(columns={"unique_id": key}) for key in keys}
    return {key: table.astype({key: STRING}) for key, table in tables.items()}
