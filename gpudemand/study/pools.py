"""What is installed, ordered and paid for, of all GPUs or by pool; types that count as another; clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, check_choice, check_list, check_number, nearest, shorten, spelled
from gpudemand.datasets.devices import device
from gpudemand.jobs.table import read_names
from gpudemand.planning.capacity import check_lead_time, check_steps

if TYPE_CHECKING:
    from gpudemand.study.settings import Aliases, Installed, LeadTime, PricePair, Prices

#: What a pool is.
NOUNS = {"gpu_type": "GPU type", "cluster": "cluster"}
_T = TypeVar("_T")


def parse_installed(text: str) -> float | dict[str, float]:
    """Parse the option ``--installed``: one number, or one number per GPU type.

    >>> parse_installed("96"), parse_installed("A100=64,H100=32")
    (96.0, {'A100': 64.0, 'H100': 32.0})
    """
    try:
        if "=" not in text:
            return float(text)
        pairs = [pair.rsplit("=", 1) for pair in text.split(",")]
        counts = {name.strip(): float(count) for name, count in pairs}
    except ValueError as error:
        raise InputError(
            f"installed={shorten(text)!r} is no number of GPUs; write 96, or A100=64,H100=32 by type."
        ) from error
    if len(counts) < len(pairs):
        raise InputError(f"installed={shorten(text)!r} names a GPU type twice; give one number for each.")
    return counts


def reserved_price(prices: Prices) -> float | dict[str, float] | None:
    """Price of a reserved GPU-hour, of all or by name."""
    if isinstance(prices, Mapping):
        return {name: pair[0] for name, pair in prices.items()}
    return None if prices is None else prices[0]


def mean_prices(prices: Prices, gpu_hours: Callable[[], pd.Series]) -> PricePair | None:
    """Prices of all as one pool: the means by the GPU-hours of each name.

    >>> mean_prices({"A100": (1.0, 2.0), "H100": (4.0, 8.0)}, lambda: pd.Series({"A100": 20.0, "H100": 10.0}))
    (2.0, 4.0)
    """
    if not isinstance(prices, Mapping):
        return prices
    hours = gpu_hours()
    weights = hours[hours.index.isin(prices)]
    reserved, on_demand = (sum(prices[name][side] * hours for name, hours in weights.items()) for side in (0, 1))
    return float(reserved / weights.sum()), float(on_demand / weights.sum())


def installed_cost(installed: Installed, prices: Prices, mean: PricePair | None) -> float | pd.Series | None:
    """Cost of an hour of the GPUs installed, each at its reserved price, or else `mean`; a Series where they change.

    None where GPUs or prices are not given by name.

    >>> installed_cost({"A100": 20, "H100": 10}, {"A100": (1.0, 2.0), "H100": (4.0, 8.0)}, (2.0, 4.0))
    60.0
    """
    if not isinstance(installed, Mapping) or not isinstance(prices, Mapping) or mean is None:
        return None
    return total_installed({name: count * prices.get(name, mean)[0] for name, count in installed.items()})


def check_names(parameter: str, value: object, names: list[str], pool: str) -> None:
    """Check that a value by name covers every pool of the log, and none in two spellings."""
    if not isinstance(value, Mapping):
        return
    others = [str(name) for name in value if name not in names]
    called = {_alike(name, pool): name for name in names}
    for name in others:
        if (known := called.setdefault(_alike(name, pool), name)) != name:
            place = "in this log" if known in names else "there, too"
            raise InputError(
                f"{parameter} has {name!r}, which is called {known!r} {place}; give one value, for {known!r}."
            )
    for name in names:
        if name not in value:
            slips = (f" It has {o!r}, which is no known one.{hint}" for o in others if (hint := _near(o, name)))
            retired = "; 0 for a retired one" if parameter == "installed" else ""
            needs = f"It needs one for each {NOUNS[pool]} in the log: {_few(names)}{retired}."
            raise InputError(f"{parameter} has no value for {name!r}.{next(slips, '')} {needs}")


def _alike(name: str, pool: str) -> str:
    """By what two names are of one pool: clusters may differ in a hyphen alone."""
    return spelled(name) or name if pool == "gpu_type" else name.casefold()


def _few(names: list[str], most: int = 20) -> str:
    """Names in a message, as many as one can read.

    >>> _few(["A100", "H100", "V100"], 2)
    'A100, H100 and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(str(shorten(name)) for name in names[:most]) + more


def _near(given: str, name: str) -> str:
    """Hint at a name for one that no data sheet has."""
    try:
        device(given)
    except InputError:
        return nearest(given, [name])
    return ""


def check_installed(installed: Installed) -> None:
    """Check the numbers of GPUs."""
    if isinstance(installed, pd.Series):
        check_steps("installed", installed)
    elif isinstance(installed, Mapping):
        for name, count in _items("installed", installed):
            place = f"installed[{name!r}]"
            if isinstance(count, pd.Series):
                check_steps(place, count)
            else:
                check_number(place, count, 0)
        most = pd.Series(total_installed(installed)).max()
        check_number("installed, summed over types,", most, 0, open_low=True)
    elif installed is not None:
        check_number("installed", installed, 0, open_low=True)


def total_installed(installed: Installed) -> float | pd.Series | None:
    """GPUs installed, summed over types; a Series where some of them are.

    >>> steps = pd.Series([8.0, 16.0], pd.to_datetime(["2026-01-01", "2026-07-01"], utc=True))
    >>> total_installed({"A100": 64, "H100": 32}), total_installed({"A100": 64, "H100": steps}).tolist()
    (96.0, [72.0, 80.0])
    """
    if not isinstance(installed, Mapping):
        return installed if installed is None or isinstance(installed, pd.Series) else float(installed)
    steps = [check_steps("installed", count) for count in installed.values() if isinstance(count, pd.Series)]
    rest = float(sum(count for count in installed.values() if not isinstance(count, pd.Series)))
    # Before its first step, each has that of it.
    return pd.concat(steps, axis=1, sort=True).ffill().bfill().sum(axis=1) + rest if steps else rest


def installed_changes(installed: Installed, begin: pd.Timestamp, end: pd.Timestamp) -> list[dict[str, object]]:
    """GPUs that arrive, or leave (negative), after one time and until another, by date, in the zone of the first.

    >>> times = pd.to_datetime(["2026-01-01", "2026-03-01", "2026-07-01"], utc=True)
    >>> installed_changes({"A100": pd.Series([64.0, 64.0, 0.0], times), "H100": 8}, times[0], times[2])
    [{'on': '2026-07-01T00:00:00+00:00', 'gpus': -64.0, 'name': 'A100'}]
    >>> installed_changes(pd.Series([8.0, 24.0], times[1:]), times[0], times[2])
    [{'on': '2026-07-01T00:00:00+00:00', 'gpus': 16.0, 'name': None}]
    """
    named = installed.items() if isinstance(installed, Mapping) else [(None, installed)]
    in_time = {name: check_steps("installed", given) for name, given in named if isinstance(given, pd.Series)}
    # The first number holds before its time, too.
    steps = {name: given.diff().fillna(0.0) for name, given in in_time.items()}
    changes = ((on, gpus, name) for name, change in steps.items() for on, gpus in change.items())
    found = [change for change in changes if begin < change[0] <= end and change[1]]
    zone = begin.tz
    return [
        {"on": on.tz_convert(zone).isoformat(), "gpus": gpus, "name": name}
        for on, gpus, name in sorted(found, key=lambda c: c[0])
    ]


def pulled_installed(
    attrs: Mapping[Any, object],
    names: Callable[[str], list[str]],
    pool: str,
    clusters: tuple[str, ...] | None = None,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Installed:
    """GPUs of the nodes as they were pulled: by name of the pool if that of each is known, or else of all.

    `attrs`: ``installed_by_cluster``, cluster -> type -> time -> GPUs, as `read_jobs` gives it of a store; or
    ``installed_by_type`` and ``installed``, as `pulled_usage` does. None where they were not pulled, or not of every
    cluster of the data.
    """
    by_cluster: Any = attrs.get("installed_by_cluster")
    if by_cluster is None:
        by_cluster = {"": attrs.get("installed_by_type") or {"": attrs.get("installed") or {}}}
    elif not {*names("cluster")} <= {*by_cluster}:
        return None
    chosen = {name: types for name, types in by_cluster.items() if clusters is None or name in clusters}
    steps: dict[str, dict[str, pd.Series]] = {}
    for cluster, types in chosen.items():
        for kind, pulled in types.items():
            if pulled:
                name = cluster if pool == "cluster" else aliases.get(kind, kind)
                since = pd.to_datetime(list(pulled), utc=True)
                steps.setdefault(name, {})[f"{cluster}/{kind}"] = pd.Series([*pulled.values()], since, dtype=float)
    found: dict[str, Any] = {name: total_installed(parts) for name, parts in steps.items()}
    known = {*names(pool)}
    return found if known and known <= set(found) else total_installed(found) if found else None


def check_lead_times(lead_time: LeadTime) -> None:
    """Check that each is a length of time, and not negative."""
    for lead in dict(_items("lead_time", lead_time)).values() if isinstance(lead_time, Mapping) else [lead_time]:
        check_lead_time(lead)


def check_prices(prices: object) -> None:
    """Check that there are two prices, of each type or of all."""
    if isinstance(prices, Mapping):
        for name, pair in _items("prices", prices):
            _check_pair(f"prices[{name!r}]", pair)
    elif prices is not None:
        _check_pair("prices", prices)


def _items(parameter: str, value: Mapping[str, _T]) -> list[tuple[str, _T]]:
    if not value:
        raise InputError(f"{parameter} names no GPU type; give one value for all, or one for each type.")
    return list(value.items())


def _check_pair(place: str, pair: object) -> None:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InputError(f"{place} must be two numbers, reserved and on demand, per GPU-hour; got {shorten(pair)!r}.")
    reserved = check_number(f"{place} (reserved)", pair[0], 0, open_low=True)
    on_demand = check_number(f"{place} (on demand)", pair[1], 0, open_low=True)
    if reserved > on_demand:
        raise InputError(
            f"{place}: the reserved price {reserved:g} exceeds the on-demand price {on_demand:g}; the reserved price "
            "comes first."
        )


#: Name of the type of jobs that have none.
UNKNOWN = "unknown"


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

    >>> of_aliases({"A100": 1.5}, {"unknown": "A100"})
    {'A100': 1.5, 'unknown': 1.5}
    """
    if not isinstance(price, dict):
        return price
    return price | {name: price[other] for name, other in (aliases or {}).items() if other in price}


def cluster_names(cluster: str | Sequence[str]) -> tuple[str, ...]:
    """Names of clusters, of which a text may have several with commas between, in order and each once.

    >>> cluster_names("beta, alpha"), cluster_names(["alpha"])
    (('alpha', 'beta'), ('alpha',))
    """
    names = cluster.split(",") if isinstance(cluster, str) else check_list("cluster", cluster, "names")
    return tuple(sorted({str(name).strip() for name in names}))


def select_clusters(jobs: pd.DataFrame, cluster: str | Sequence[str] | None) -> pd.DataFrame:
    """Jobs of the clusters of these names, in one text with commas between; all where there are none, or ``each``.

    >>> jobs = pd.DataFrame({"cluster": ["alpha", "beta", "gamma"], "gpus": [1, 2, 4]})
    >>> select_clusters(jobs, "alpha,gamma")["gpus"].tolist()
    [1, 4]
    """
    if cluster is None:
        return jobs
    clusters = read_names(jobs["cluster"]) if "cluster" in jobs else pd.Series(dtype=str)
    known = sorted(clusters.dropna().unique())
    if not known:
        raise InputError("this log names no clusters, so none can be selected; leave cluster out.")
    if cluster == "each":
        return jobs
    names = cluster_names(cluster)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"this log has no cluster {', '.join(unknown)!r}.{nearest((*unknown, '')[0], known)}")
    selected = jobs[clusters.isin(names).to_numpy()]
    selected.attrs = dict(jobs.attrs)
    return selected


def check_zone(tz: str) -> None:
    """Raise for what is no time zone."""
    try:
        pd.Timestamp(0, tz=tz)
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise InputError(f"tz={shorten(tz)!r} is no time zone; write 'UTC' or 'Europe/Berlin'.") from error
