"""What is checked before a pull from Slurm, since `sacct` would answer nothing, or the wrong period, without a word."""

from __future__ import annotations

import pandas as pd

from gpudemand._validation import InputError, nearest
from gpudemand.slurm.command import controller_time, known_clusters, known_fields

#: As long as munge accepts a credential, without which nothing of Slurm answers ("munged" manual, option ``--ttl``).
_CLOCKS_APART = pd.Timedelta("5min")


def checked_fields(now: pd.Timestamp, clusters: str | None) -> tuple[str, ...]:
    """Fields to ask Slurm for, after a look at the clocks and the names of clusters."""
    fields = known_fields()
    _check_clock(now)
    _check_clusters(clusters)
    return fields


def _check_clock(now: pd.Timestamp) -> None:
    """Raise if the clocks of this machine and of Slurm's controller, where it answers, are far apart."""
    theirs = controller_time()
    if theirs is not None and abs(theirs - now) > _CLOCKS_APART:
        raise InputError(
            f"the clock of this machine says {now:%Y-%m-%d %H:%M} and that of Slurm's controller "
            f"{theirs:%Y-%m-%d %H:%M} (UTC); set the one that is off."
        )


def _check_clusters(clusters: str | None) -> None:
    """Raise for a name that no cluster of the accounting has."""
    known = known_clusters() if clusters not in (None, "all") else None
    if known is None:
        return
    for name in str(clusters).split(","):
        if name.strip().lower() not in known:
            raise InputError(
                f"Slurm's accounting has no cluster {name.strip()!r}.{nearest(name, known)} It has {', '.join(known)}."
            )
