"""Selection of the clusters of a log."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gpudemand._validation import InputError, nearest

#: Instead of a name: all clusters, each a pool of its own.
EACH = "each"


def cluster_names(cluster: str | Sequence[str]) -> tuple[str, ...]:
    """Names of clusters, of which a text may have several with commas between, in order and each once.

    Examples
    --------
    >>> cluster_names("beta, alpha"), cluster_names(["alpha"])
    (('alpha', 'beta'), ('alpha',))
    """
    names = cluster.split(",") if isinstance(cluster, str) else cluster
    return tuple(sorted({name.strip() for name in names}))


def select_clusters(jobs: pd.DataFrame, cluster: str | Sequence[str] | None) -> pd.DataFrame:
    """Jobs of the clusters of these names, or all where there are none.

    Parameters
    ----------
    jobs : DataFrame
        With the column ``cluster``.
    cluster : str or sequence of str or None
        Names, in one text with commas between; ``"each"`` selects all.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        If the log has no cluster of a name; says which are near.

    Examples
    --------
    >>> jobs = pd.DataFrame({"cluster": ["alpha", "beta", "gamma"], "gpus": [1, 2, 4]})
    >>> select_clusters(jobs, "alpha,gamma")["gpus"].tolist()
    [1, 4]
    """
    if cluster is None:
        return jobs
    known = sorted(jobs["cluster"].dropna().astype(str).unique()) if "cluster" in jobs else []
    if not known:
        raise InputError("this log names no clusters, so none can be selected; leave cluster out.")
    if cluster == EACH:
        return jobs
    names = cluster_names(cluster)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"this log has no cluster {', '.join(unknown)!r}.{nearest((*unknown, '')[0], known)}")
    selected = jobs[jobs["cluster"].isin(names)]
    selected.attrs = dict(jobs.attrs)
    return selected
