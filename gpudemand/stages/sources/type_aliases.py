"""GPU types of a log that count as another: jobs that named none, slices as their card, one card under two names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_choice, nearest

#: Name of the type of jobs that have none.
UNKNOWN = "unknown"
#: Type of the log -> type that it counts as.
Aliases = Mapping[str, str] | None


def check_aliases(aliases: Aliases) -> None:
    """Raise for names that are no text, and for a type that counts as one which counts as another itself."""
    if not isinstance(aliases, Mapping | None):
        raise InputError(f"type_aliases must be a mapping of GPU types to others; got {aliases!r}.")
    for name, other in (aliases or {}).items():
        if not (isinstance(name, str) and isinstance(other, str) and name and other):
            raise InputError(f"type_aliases must be names of GPU types; got {name!r} for {other!r}.")
        if other != name and other in (aliases or {}):
            raise InputError(f"type_aliases counts {name!r} as {other!r}, which counts as another; name the last one.")


def rename_types(jobs: pd.DataFrame, aliases: Aliases) -> pd.DataFrame:
    """Jobs with the GPU types that theirs count as.

    Raises
    ------
    InputError
        If no job and no node has a type of a name.

    Examples
    --------
    >>> jobs = pd.DataFrame({"gpu_type": pd.Series(["A100", None, "1g.10gb"], dtype="string")})
    >>> rename_types(jobs, {"unknown": "A100", "1g.10gb": "A100"})["gpu_type"].tolist()
    ['A100', 'A100', 'A100']
    """
    if not aliases:
        return jobs
    types = jobs["gpu_type"].astype(STRING) if "gpu_type" in jobs else pd.Series(pd.NA, jobs.index, dtype=STRING)
    _check_known(aliases, types.dropna().unique(), jobs.attrs)
    renamed = jobs.assign(gpu_type=types.fillna(aliases.get(UNKNOWN, pd.NA)).replace(dict(aliases)).astype(STRING))
    renamed.attrs = dict(jobs.attrs)
    return renamed


def rename_series(
    wide: pd.DataFrame, keys: tuple[str, ...], aliases: Aliases, attrs: Mapping[Any, Any]
) -> pd.DataFrame:
    """Usage without jobs, a column a series, with the types that theirs count as; sums are unknown where a part is.

    Examples
    --------
    >>> wide = pd.DataFrame({"ml/A100": [1.0], "ml/unknown": [2.0], "cv/A100": [4.0]})
    >>> rename_series(wide, ("namespace", "gpu_type"), {"unknown": "A100"}, {}).to_dict("list")
    {'cv/A100': [4.0], 'ml/A100': [3.0]}
    """
    if not aliases:
        return wide
    check_choice("gpu_type, which type_aliases needs, as a key of this usage", "gpu_type", keys)
    parts = [str(name).split("/", len(keys) - 1) for name in wide.columns]
    place = keys.index("gpu_type")
    names = [part[place].replace("%2F", "/") for part in parts]
    _check_known(aliases, names, attrs)
    for part, name in zip(parts, names, strict=True):
        part[place] = aliases.get(name, name).replace("/", "%2F")
    known = wide.T.groupby(["/".join(part) for part in parts])
    return known.sum(min_count=1).where(known.count().eq(known.size(), axis=0)).T


def _check_known(aliases: Mapping[str, str], names: Iterable[str], attrs: Mapping[Any, Any]) -> None:
    of_nodes = [attrs.get("installed_by_type") or {}, *(attrs.get("installed_by_cluster") or {}).values()]
    known = {UNKNOWN, *names, *(name for types in of_nodes for name in types)}
    for name in aliases:
        if name not in known:
            raise InputError(
                f"type_aliases has {name!r}, and no job and no node is of that type.{nearest(name, known)} "
                f"Types are {', '.join(sorted(known))}."
            )


def of_aliases(price: float | dict[str, float] | None, aliases: Aliases) -> float | dict[str, float] | None:
    """Prices by type, also of the types that count as another.

    Examples
    --------
    >>> of_aliases({"A100": 1.5}, {"unknown": "A100"})
    {'A100': 1.5, 'unknown': 1.5}
    """
    if not isinstance(price, dict):
        return price
    return price | {name: price[other] for name, other in (aliases or {}).items() if other in price}
