"""Aggregation of series with hierarchical names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, shorten
from gpudemand.usage.series import to_long, to_wide


def aggregate_usage(
    usage: pd.DataFrame, spec: str | Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, list[str]]]:
    """Aggregate series with hierarchical names to every level of the hierarchy.

    Parameters
    ----------
    usage : DataFrame
        Long frame with paths as ``unique_id``, as from ``usage_series(jobs, by="cluster/group/user")``.
    spec : str or sequence of str
        Names of the levels from the top down, ``"cluster/group/user"``; the total is added.

    Returns
    -------
    Y_df : DataFrame
        ``unique_id``, ``ds``, ``y`` of every node, the total first; the bottom series keep their names.
    S_df : DataFrame, shape (n_nodes, n_bottom + 1)
        Summing matrix, with the node in the column ``unique_id``.
    tags : dict of str to list of str
        Level -> its nodes. The three are the inputs of hierarchicalforecast's methods.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.to_datetime(["2026-03-01"] * 3)
    >>> usage = pd.DataFrame({"unique_id": ["x/ada", "x/bob", "y/eve"], "ds": ds, "y": [1.0, 2.0, 4.0]})
    >>> nodes, _, tags = aggregate_usage(usage, "group/user")
    >>> dict(zip(nodes["unique_id"], nodes["y"]))
    {'total': 7.0, 'x': 3.0, 'y': 4.0, 'x/ada': 1.0, 'x/bob': 2.0, 'y/eve': 4.0}
    """
    levels = spec.split("/") if isinstance(spec, str) else list(spec)
    wide = to_wide(usage)
    paths = [str(name).split("/") for name in wide.index]
    wrong = [name for name, path in zip(wide.index, paths, strict=True) if len(path) != len(levels)]
    if wrong:
        raise InputError(
            f"{len(wrong)} series do not have the {len(levels)} parts of {'/'.join(levels)!r}, "
            f"such as {shorten(wrong[0])!r}."
        )
    nodes: dict[str, FloatArray] = {"total": np.ones(len(paths))}
    tags = {"total": ["total"]}
    for depth in range(1, len(levels) + 1):
        member = pd.Index(["/".join(path[:depth]) for path in paths])
        names = sorted(set(member))
        nodes.update({name: (member == name).astype(float) for name in names})
        tags["/".join(levels[:depth])] = names
    summing = pd.DataFrame.from_dict(nodes, orient="index", columns=wide.index)
    sums = pd.DataFrame(summing.to_numpy() @ wide.to_numpy(), index=summing.index, columns=wide.columns)
    tree = to_long(sums.rename_axis(index="unique_id"))
    tree = tree.iloc[np.argsort(summing.index.get_indexer(tree["unique_id"]), kind="stable")].reset_index(drop=True)
    return tree, summing.rename_axis("unique_id").reset_index(), tags
