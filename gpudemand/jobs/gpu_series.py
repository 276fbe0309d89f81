"""What the labels of series in Prometheus say: which of them count GPUs that are held, and what one unit is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gpudemand._validation import InputError, shorten
from gpudemand.units import gpu_share, slice_shares

#: Units at the end of a legend.
_UNIT = r"%|\((?:[KMGT]i?B|k?W|°C|[MG]Hz|h)\)$"
_NO_GPUS = re.compile(
    r"UTIL|TEMP|POWER|CLOCK|ENERGY|MEM|_FB_|bytes|percent|ratio|seconds|_info$|_(?:cpus?|jobs|nodes)(?:_|$)"
    r"|(?:hours|hourly|speed|errors?|health)(?:_|:|$)|cost(?!_?cent)|price|duty_cycle|activity|occupancy|bandwidth"
    r"|throughput|voltage|vram|_gtt|restarts|replay|^kube_.*_status_(?!allocatable|capacity)|scalar_resources|" + _UNIT,
    re.IGNORECASE,
)
#: How metrics of devices, of Kubernetes and of hosts begin, of which few count GPUs.
_EXPORTER = re.compile(r"(?:DCGM|nvidia|amd|rocm|habanalabs|xpum|kube|kubernetes|container|node|machine)_", re.I)
#: The same of columns without labels; others that begin so are names of those who hold GPUs.
_BARE = re.compile(
    r"(?:DCGM_FI|nvidia_(?:smi|gpu)|kube_(?:pod|node)|(?:container|node)_(?:accelerator|gpu|cpu|memory))_"
)
_GPU_RESOURCE = re.compile(r"gpu|mig|i915|xe$|gaudi|tpu|ascend|npu|dcu|gcu|mlu|xpu|neuron|accel", re.IGNORECASE)
#: Resources at the end of a legend.
_LEGEND = re.compile(r"\w+_com_(?:gpu|mig)\w*$|[\w.]+\.com/(?:gpu|mig)[\w.-]*$")
#: Words for GPUs that are held; of metrics that differ in these only, that whose word comes first counts.
_HELD = (
    *("alloc", "allocated", "allocation", "running", "held", "assigned", "claimed", "request", "requests", "requested"),
    *("used", "use", "usage", "reservation", "limits", "init"),
)
#: Words for GPUs that are there or wanted, and not held.
_NOT_HELD = {
    *("allocatable", "available", "capacity", "completed", "down", "drain", "drained", "draining", "failed", "free"),
    *("hard", "idle", "installed", "limit", "nominal", "offline", "other", "pending", "queued", "quota", "succeeded"),
    *("unallocated", "unused", "waiting"),
}
#: Labels whose values are states of GPUs, of pods and of quotas.
_STATES = ("state", "phase", "status", "type")
#: What columns are called that are states of the GPUs of all.
_COLUMN_STATES = frozenset(("allocatable", "available", "capacity", "idle", "installed", "quota", "unallocated"))
#: Labels of which each value is one card.
_CARDS = ("uuid", "gpu_uuid", "deviceuuid", "dcgm_fi_driver_version")
#: Labels that are looked at, in lower case.
READ = ("__name__", "resource", "name", "gpu_i_profile", *_STATES, *_CARDS)
_ASK = 'ask for kube_pod_container_resource_requests{resource="nvidia_com_gpu"}'
_REQUESTS = re.compile(r"kube_pod_(?:init_)?(?:container_)?resource_(?:request|limit)")
_REQUESTED = (
    "requests stay listed for pods that wait or are completed, and count as held: multiply them by "
    'kube_pod_status_phase{phase="Running"} (`gpudemand pull prometheus` does).'
)


def labels_of_column(column: str) -> dict[str, str]:
    """Metric and labels of a series, after which Grafana names its column where it has no legend."""
    metric, brace, labels = column.partition("{")
    if brace:
        return {"__name__": metric.strip()} | dict(re.findall(r'(\w+)="([^"]*)"', labels))
    if _BARE.match(column) or re.search(_UNIT, column):
        return {"__name__": column}
    resource = {"resource": found[0]} if (found := _LEGEND.search(column)) else {}
    return resource | ({"state": column} if column.strip().lower() in _COLUMN_STATES else {})


def gpus_per_unit(series: Iterable[Mapping[str, object]], source: str, said: list[str]) -> list[float | None]:
    """GPUs that one unit of each series is, None of those that do not count; what was left out is said."""
    read = [_known(labels) for labels in series]
    _check_counts(read, source)
    other = {labels["resource"] for labels in read if "resource" in labels and not _is_gpu(labels["resource"])}
    if other:
        said.append(f"series of the resource {', '.join(sorted(other))} are no GPUs, and did not count.")
    held = _held([labels for labels in read if labels.get("resource") not in other], source, said)
    again = _told_again({labels.get("__name__", "") for labels in held}, said)
    counted = {id(labels) for labels in held if labels.get("__name__") not in again}
    _say_doubts([labels for labels in held if id(labels) in counted], said)
    return [_share(labels) if id(labels) in counted else None for labels in read]


def check_one_metric(names: set[str], source: str) -> None:
    """Raise where series of several metrics would be added up."""
    if len(names) > 1:
        raise InputError(
            f"{source!r} has series of several metrics ({shorten(', '.join(sorted(names)))}), which may tell of the "
            "same GPUs; ask for one of them, or sum by (namespace) what adds up."
        )


def _known(labels: Mapping[str, object]) -> dict[str, str]:
    """Labels in lower case; Ray calls the resource a name."""
    read = {name.lower(): str(value) for name, value in labels.items() if value}
    return {"resource": read.get("name", "GPU"), **read} if read.get("__name__") == "ray_resources" else read


def _check_counts(series: Sequence[Mapping[str, str]], source: str) -> None:
    """Raise for metrics that count no GPUs, and for measurements of single cards whose metric is not named."""
    if wrong := sorted({labels["__name__"] for labels in series if _counts_no_gpus(labels)}):
        raise InputError(f"{source!r} has series of {wrong[0]}, which are no numbers of GPUs; {_ASK}.")
    if cards := sorted({name for labels in series if not labels.get("__name__") for name in _CARDS if name in labels}):
        raise InputError(
            f"{source!r} has series of single cards (label {cards[0]}) and does not name their metric, which may be "
            f"their utilization; {_ASK}, or count by (namespace)."
        )


def _counts_no_gpus(labels: Mapping[str, str]) -> bool:
    """Whether a metric counts no GPUs; of an exporter, all but those of GPUs or resources in a known state."""
    name = labels.get("__name__", "")
    of_gpus = "resource" in labels or "resource" in name or _GPU_RESOURCE.search(name)
    return bool(_NO_GPUS.search(name) or (_EXPORTER.match(name) and not (of_gpus and _words(labels) & _KNOWN)))


def _words(labels: Mapping[str, str]) -> set[str]:
    """Words of the metric and of the values of labels that are states."""
    texts = (labels.get(name, "") for name in ("__name__", *_STATES))
    return {word.lower() for text in texts for word in _WORD.findall(text)}


#: Of names in any spelling: ``slurm_gpus_idle``, ``gpusIdle``, ``IDLE``.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: A total is of all GPUs, unless of those that are held.
_KNOWN = {*_HELD, *_NOT_HELD, "total"}


def _is_held(labels: Mapping[str, str]) -> bool:
    words = _words(labels)
    return not words & _NOT_HELD and ("total" not in words or bool(words & set(_HELD)))


def _held(series: list[dict[str, str]], source: str, said: list[str]) -> list[dict[str, str]]:
    """Series of GPUs that are held; raises where there are only others."""
    held = [labels for labels in series if _is_held(labels)]
    others = {_shown(labels) for labels in series if not _is_held(labels)}
    names = shorten(", ".join(sorted(others)), 120)
    if others and not held:
        raise InputError(
            f"{source!r} has only series of GPUs that are there or wanted, not of those held ({names}); {_ASK}, or "
            "sum by (namespace) if these are held."
        )
    if others:
        said.append(f"series of {names} are of GPUs that are there or wanted, not held, and did not count.")
    return held


def _shown(labels: Mapping[str, str]) -> str:
    """Metric and states of a series."""
    states = ", ".join(f'{name}="{labels[name]}"' for name in _STATES if name in labels)
    return labels.get("__name__", "") + (f"{{{states}}}" if states else "")


def _told_again(names: set[str], said: list[str]) -> set[str]:
    """Metrics that tell of the same GPUs as another: they differ in the words for these only."""
    words = {name: [word.lower() for word in _WORD.findall(name)] for name in sorted(names - {""})}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, own in words.items():
        groups.setdefault(tuple(word for word in own if word not in _HELD), []).append(name)
    again = set()
    for group in groups.values():
        first, *others = sorted(
            group, key=lambda name: max((_HELD.index(w) for w in words[name] if w in _HELD), default=99)
        )
        if others:
            said.append(f"series of {', '.join(others)} tell of the same GPUs as those of {first}, and did not count.")
        again |= set(others)
    return again


def _say_doubts(series: Sequence[Mapping[str, str]], said: list[str]) -> None:
    """Say of what counts why it may be too much."""
    if any("pod" in labels and _REQUESTS.match(labels.get("__name__", "")) for labels in series):
        said.append(_REQUESTED)
    parts = {name for labels in series if _PART.search(name := labels.get("resource", "")) and not slice_shares(name)}
    if parts:
        said.append(
            f"{', '.join(sorted(parts))} are parts of GPUs, and how many make one is not told: each counts as a whole "
            "GPU. `gpudemand pull prometheus` asks the nodes."
        )


#: Resources that are no whole GPUs: slices, and those that are shared by time or MPS.
_PART = re.compile(r"[._]shared$|[/_]mig[-_]|vgpu")


def _is_gpu(resource: str) -> bool:
    return _GPU_RESOURCE.search(resource) is not None and "mem" not in resource and "core" not in resource


def _share(labels: Mapping[str, str]) -> float:
    """Share of a GPU by the profile of a slice, in its resource or its own label."""
    return float(min(gpu_share(labels.get("resource", "")), gpu_share(labels.get("gpu_i_profile", ""))))
