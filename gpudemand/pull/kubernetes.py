"""The GPUs of a Kubernetes cluster in Prometheus: what is asked for, and what the answers count."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd

from gpudemand.units import RESERVATIONS, gpu_share

COLUMNS = ["measure", "namespace", "node", "gpu_type"]
#: As kube-state-metrics spells them; not nvidia.com/gpumem and gpucores, which count memory and cores.
_NAMES = (
    '"(nvidia|amd)_com_(gpu|(gpu|mig)_.+|pgpu)|gpu_intel_com_(i915|xe)|habana_ai_gaudi|google_com_tpu|'
    "huawei_com_[Aa]scend\\\\w+|(hygon|enflame|metax_tech|mthreads|iluvatar|kunlunxin|cambricon)_com_(d?gpu|dcu|gcu|vgpu|xpu|mlu).*|"
    'aws_amazon_com_neuron(device)?"'
)
_GPUS = f"{{resource=~{_NAMES}}}"
_KUEUE_GPUS = (
    '{resource=~"(nvidia|amd)[.]com/(gpu|mig-.+)|gpu[.]intel[.]com/(i915|xe)|habana[.]ai/gaudi|google[.]com/tpu"}'
)


def _own(metric: str, *names: str) -> str:
    """Series under their own labels, which are called ``exported_...`` where those of the exporter took their place."""
    for name in names:
        metric = f'label_replace({metric}, "{name}", "$1", "exported_{name}", "(.+)")'
    return metric


_POD = ("namespace", "pod")
#: Requests stay listed for pods that wait and for those that have completed; and more than one exporter may run.
_REQUESTS = (
    "max by (cluster, namespace, pod, uid, container, node, resource) "
    f"({_own(f'kube_pod_container_resource_requests{_GPUS}', *_POD, 'container', 'node')})"
)
_OPEN = 'kube_pod_status_phase{phase=~"Pending|Running"}'
_PHASES = f"max by (cluster, namespace, pod, uid, phase) ({_own(_OPEN, *_POD)}) == 1"
PODS = (
    "sum by (cluster, namespace, node, resource, phase) "
    f"({_REQUESTS} * on (cluster, namespace, pod, uid) group_left (phase) ({_PHASES}))"
)
REQUESTED = f"sum by (namespace) ({_REQUESTS}) > 0"
#: Nodes are named as by `with_nodes`.
_NODES = f"""label_join({_own(f"kube_node_status_allocatable{_GPUS}", "node")}, "node", "/", "cluster", "node")"""
ALLOCATABLE = f'max by (node, resource) (label_replace({_NODES}, "node", "$1", "node", "/(.+)"))'
#: What may be GPUs and does not count, such as those that KubeVirt passes through, by model, and memory of GPUs.
OTHERS = (
    'count by (resource) (kube_node_status_allocatable{resource=~".*(gpu|nvidia|vcuda|tpu|npu|gaudi|neuron).*", '
    f'resource!~"nvidia_com_gpu(mem.*|cores)|gpu_intel_com_.*|.*neuroncore", resource!~{_NAMES}}} > 0)'
)
_CARDS = "DCGM_FI_DEV_GPU_UTIL"
_CARD = "cluster, Hostname, hostname, UUID, gpu, gpu_id, GPU_I_ID"


def _shown(of: str) -> str:
    """Utilization of cards; that of a slice is zero or absent, and the share of time of its engines known."""
    return (
        f'({_CARDS}{{GPU_I_PROFILE="",{of}}} or 100 * DCGM_FI_PROF_GR_ENGINE_ACTIVE{{GPU_I_PROFILE!="",{of}}} '
        f'or label_replace(gpu_gfx_activity{{{of}}}, "modelName", "$1", "card_model", "(.+)"))'
    )


_OF_PODS = _shown('exported_pod!=""')
_UTILIZATION = f"({_OF_PODS} or ({_shown('')} unless on ({_CARD}) {_OF_PODS}))"
#: A card that two exporters show, or that is listed for each pod that shares it, counts once.
_ONCE = f"/ on ({_CARD}) group_left () count by ({_CARD}) ({_UTILIZATION})"
_TENANT = "exported_namespace, namespace, modelName, GPU_I_PROFILE"
#: Of the utilization of GPUs with a pod, their number, its sum, and how many are below some per cent are stored.
IDLE_PERCENT = (5, 20, 50)
UTILIZATIONS = {
    "used": f"sum by ({_TENANT}) ({_UTILIZATION} {_ONCE}) / 100",
    "measured": f"sum by ({_TENANT}) ({_UTILIZATION} ^ 0 {_ONCE})",
    **{
        f"under_{percent}": f"sum by ({_TENANT}) (({_UTILIZATION} < {percent}) ^ 0 {_ONCE})" for percent in IDLE_PERCENT
    },
}
_PRODUCTS = ("label_nvidia_com_gpu_product", "label_cloud_google_com_gke_accelerator", "label_amd_com_gpu_product_name")
_REPLICAS = ("label_nvidia_com_gpu_replicas", "label_cloud_google_com_gke_max_shared_clients_per_gpu")
_PARTITION = "label_cloud_google_com_gke_gpu_partition_size"
_NODE_LABELS = " or ".join(f'kube_node_labels{{{name}!=""}}' for name in _PRODUCTS)
_NODE_KEYS = ", ".join(("cluster", "node", *_PRODUCTS, *_REPLICAS, _PARTITION))
CARDS = f"count by (cluster, Hostname, modelName) (max by (cluster, Hostname, UUID, modelName) ({_CARDS}))"
#: Of each hour.
TYPES = {
    "modelName": "count by (cluster, Hostname, modelName) "
    f"(max by (cluster, Hostname, UUID, modelName) (max_over_time({_CARDS}[1h])))",
    "label_nvidia_com_gpu_product": f"count by ({_NODE_KEYS}) (max_over_time(({_own(_NODE_LABELS, 'node')})[1h:5m]))",
}
_CLAIMS = _own("kube_pod_resource_claim_info", *_POD)
_AS_EXPORTED = (
    f'label_replace(label_replace({_REQUESTS}, "exported_namespace", "$1", "namespace", "(.+)"), '
    '"exported_pod", "$1", "pod", "(.+)")'
)
#: Cards of pods that request none: those of claims (dynamic resource allocation).
CLAIMED = (
    f"count by (cluster, Hostname, {_TENANT}) (max by (cluster, Hostname, UUID, {_TENANT}) "
    f'(({_CARDS}{{exported_pod!=""}} unless on (cluster, exported_namespace, exported_pod) {_AS_EXPORTED}) '
    f'or ({_CARDS}{{exported_pod=""}} and on (cluster, namespace, pod) {_CLAIMS})))'
)
#: Suspended jobs have no pods until Kueue admits them.
KUEUE = f"sum by (cluster, cluster_queue, resource) (kueue_cluster_queue_resource_pending{_KUEUE_GPUS})"
KUEUE_WORKLOADS = "sum by (cluster, cluster_queue) (kueue_pending_workloads)"
#: Labels of answers that are read.
LABELS = (
    *("cluster", "namespace", "exported_namespace", "node", "Hostname", "resource", "phase", "modelName"),
    *("GPU_I_PROFILE", "cluster_queue", *_PRODUCTS, *_REPLICAS, _PARTITION),
)
#: No machine has more whole GPUs.
_MOST_GPUS = 16
Samples = Callable[[str], pd.DataFrame]


@dataclass
class Nodes:
    """Types of GPUs by node, shares of one by node and resource, and what of them is doubtful or not listed."""

    types: Mapping[str, str]
    shares: Mapping[tuple[str, str], Fraction]
    unlisted: frozenset[str] = frozenset()
    doubts: set[str] = field(default_factory=set)

    def share(self, node: str, resource: str) -> float:
        """Share of a GPU that one unit of a resource is; on an unknown node, the largest that it is anywhere."""
        anywhere = [share for (_, name), share in self.shares.items() if name == resource]
        return float(self.shares.get((node, resource), max(anywhere, default=gpu_share(resource))))


def read_nodes(cards: pd.DataFrame, labels: pd.DataFrame, units: pd.DataFrame) -> Nodes:
    """Types and shares from the answers to `TYPES` and `ALLOCATABLE` over a period.

    Slices by their names; time-sliced GPUs by the replicas that the labels of their node name, of GPU feature discovery
    or of GKE. Without labels, the number of GPUs of a node tells into how many parts they are sliced where the resource
    is renamed, or where there are more units than any machine has GPUs (virtual GPUs of HAMi); an exporter may see a
    part of the cards only.
    """
    cards, labels, units = (with_nodes(frame) for frame in (cards, labels, units))
    frame = labelled(labels, "node", *_PRODUCTS, *_REPLICAS, _PARTITION)
    products = frame[list(_PRODUCTS)]
    product = products.where(products != "").bfill(axis=1).iloc[:, 0]
    replicas = frame[list(_REPLICAS)].apply(pd.to_numeric, errors="coerce").max(axis=1).groupby(frame["node"]).max()
    slices = frame[_PARTITION].mask(frame[_PARTITION].eq(""), product.fillna("")).groupby(frame["node"]).max()
    types: dict[str, str] = {}
    for node, name in ((cards.get("node"), cards.get("modelName")), (frame["node"], product)):
        if node is not None and name is not None and len(node):
            known = name.notna() & name.ne("")
            types |= {str(key): "+".join(sorted(set(part))) for key, part in name[known].groupby(node[known])}
    # Of all models of a node together.
    number = (
        cards.groupby(["node", "ds"])["y"].sum().groupby("node").max() if "node" in cards else pd.Series(dtype=float)
    )
    nodes = Nodes(types, {}, _unlisted(number, units))
    shares = {}
    for (node, resource), most in labelled(units, "node", "resource").groupby(["node", "resource"])["y"].max().items():
        share = gpu_share(resource)
        if share == 1 and "_mig_" not in resource:
            share = gpu_share(slices.get(node, ""))
            share /= _parts(node, resource, most, replicas.get(node, np.nan), number.get(node, np.nan), share, nodes)
        shares[node, resource] = share
    nodes.shares = shares
    return nodes


def _parts(node: str, resource: str, units: float, replicas: float, cards: float, share: Fraction, nodes: Nodes) -> int:
    """Into how many parts each GPU of a node is sliced; what is not certain of it is said."""
    many = units / cards
    if replicas > 1 or share < 1:
        return int(max(replicas, 1)) if replicas == replicas else 1
    if resource.endswith("_gpu_shared") or (many % 1 == 0 and units > _MOST_GPUS):
        return max(round(many), 1) if many == many else 1
    if many > 1 and many % 1 == 0:
        nodes.doubts.add(
            f"node {node} has {units:g} GPUs to give, and the DCGM exporter shows {cards:g}: they count as {units:g} "
            "whole ones of which it does not show all. Where they are shared, label the node nvidia.com/gpu.replicas "
            "(GPU feature discovery)."
        )
    if "intel" in resource and units > 1:
        nodes.doubts.add(
            f"node {node} has {units:g} {resource} to give, which count as GPUs: Intel's plugin does not tell "
            "whether they are parts of the same cards (-shared-dev-num); if so, say how many GPUs are installed."
        )
    return 1


def _unlisted(number: pd.Series, units: pd.DataFrame) -> frozenset[str]:
    """Nodes of exporters whose GPUs no resource counts; none where exporters name nodes in another way."""
    listed = set(units.get("node", ()))
    return frozenset(set(number.index) - listed) if listed & set(number.index) else frozenset()


def rows_of(samples: Samples, nodes: Nodes) -> pd.DataFrame:
    """GPUs by measure, namespace, node and type, from the answers to queries at some times."""
    installed = counted(with_nodes(samples(ALLOCATABLE)).assign(measure="installed", namespace=""), nodes)
    pods = pods_of(with_nodes(samples(PODS)), nodes)
    if pods.empty and len(asked := labelled(samples(REQUESTED), "namespace")):
        nodes.doubts.add(
            f"pods of {', '.join(sorted(set(asked['namespace'])))} request GPUs, and none is known to run: is "
            "kube_pod_status_phase scraped, with the same labels (cluster) as kube_pod_container_resource_requests?"
        )
    # Without an exporter nobody tells what claims hold.
    claimed = _claimed(with_nodes(samples(CLAIMED)), nodes) if nodes.types else pods[:0]
    tenants = {*pods.get("namespace", ()), *claimed.get("namespace", ())}
    used = [_utilization(samples(query), measure, tenants) for measure, query in UTILIZATIONS.items()]
    parts = [installed, _installed_beside(samples, nodes), pods, claimed, _queued(samples, nodes), *used]
    some = [part for part in parts if len(part)]
    for name in tenants:
        if re.fullmatch(RESERVATIONS, name):
            nodes.doubts.add(f"{name} holds GPUs for pods with a fraction of one, and whose these are is not told.")
    if not some:
        return pd.DataFrame(columns=[*COLUMNS, "ds", "y"])
    rows = pd.concat(some, ignore_index=True).groupby([*COLUMNS, "ds"], as_index=False, sort=True)["y"].sum()
    sums = rows.pivot_table(index="ds", columns="measure", values="y", aggfunc="sum").reindex(
        columns=["held", "installed"]
    )
    if (sums["held"] > 1.05 * sums["installed"] + 0.5).mean() > 0.05:
        nodes.doubts.add("pods hold more GPUs than the nodes have: are all nodes scraped, and how are GPUs shared?")
    return rows


def _installed_beside(samples: Samples, nodes: Nodes) -> pd.DataFrame:
    """GPUs of nodes that give them by claims only, as far as the exporter shows them."""
    if not nodes.unlisted:
        return pd.DataFrame()
    found = with_nodes(samples(CARDS))
    found = found[found["node"].isin(nodes.unlisted)] if "node" in found else found[:0]
    frame = labelled(found, "node", "modelName").assign(measure="installed", namespace="")
    return frame.assign(gpu_type=frame["modelName"])[[*COLUMNS, "ds", "y"]]


def _claimed(found: pd.DataFrame, nodes: Nodes) -> pd.DataFrame:
    """GPUs of pods without a request, which hold them by a claim."""
    frame = _by_namespace(found)
    frame = frame[frame["namespace"].ne("")]
    if len(frame):
        names = ", ".join(sorted(set(frame["namespace"]))[:5])
        nodes.doubts.add(
            f"pods of {names} use GPUs that they do not request (ResourceClaims): they count as held as far as the "
            "DCGM exporter shows them, and those of their nodes as installed."
        )
    return frame.assign(measure="held", node="")[[*COLUMNS, "ds", "y"]]


def _queued(samples: Samples, nodes: Nodes) -> pd.DataFrame:
    """GPUs that wait in the queues of Kueue, by queue."""
    found = labelled(samples(KUEUE), "cluster_queue", "resource")
    if not len(found):
        if samples(KUEUE_WORKLOADS)["y"].gt(0).any():
            nodes.doubts.add(
                "workloads wait in Kueue, and how many GPUs they want is not known "
                "(kueue_cluster_queue_resource_pending): they are not in what is wanted."
            )
        return pd.DataFrame()
    shares = found["resource"].map(lambda name: float(gpu_share(name)))
    frame = found.assign(
        measure="pending", namespace=found["cluster_queue"], node="", gpu_type="", y=found["y"] * shares
    )
    return frame[[*COLUMNS, "ds", "y"]]


def pods_of(found: pd.DataFrame, nodes: Nodes) -> pd.DataFrame:
    """GPUs that pods hold and wait for, and of these the parts of shared ones."""
    frame = labelled(found, "namespace", "node", "resource", "phase")
    rows = counted(frame.assign(measure=frame["phase"].map({"Running": "held", "Pending": "pending"})), nodes)
    pairs = list(zip(frame["node"], frame["resource"], strict=True))
    # Shared by time-slicing.
    sliced = {pair for pair in set(pairs) if nodes.share(*pair) < float(gpu_share(pair[1]))}
    apart = rows["measure"].eq("held").to_numpy() & np.array([pair in sliced for pair in pairs], dtype=bool)
    # By namespace and type; by node there would be as many rows as pods.
    return pd.concat([rows, rows[apart].assign(measure="shared")], ignore_index=True).assign(node="")


def counted(found: pd.DataFrame, nodes: Nodes) -> pd.DataFrame:
    """Units of resources as GPUs of their types."""
    frame = labelled(found, "node", "resource", *COLUMNS[:2])
    pairs = list(zip(frame["node"], frame["resource"], strict=True))
    share = {pair: nodes.share(*pair) for pair in set(pairs)}
    slices = {name: name.rpartition("_mig_")[2].replace("_", ".") for name in set(frame["resource"]) if "_mig_" in name}
    types = [slices.get(resource, nodes.types.get(node, "")) for node, resource in pairs]
    y = frame["y"].to_numpy() * pd.Series([share[pair] for pair in pairs], dtype="float64").to_numpy()
    return frame.assign(gpu_type=pd.Series(types, index=frame.index, dtype=object), y=y)[[*COLUMNS, "ds", "y"]]


def _utilization(found: pd.DataFrame, measure: str, tenants: set[str]) -> pd.DataFrame:
    """Utilization by namespace. A GPU without a pod has no namespace, or only that of the exporter itself."""
    frame = _by_namespace(found)
    return frame[frame["namespace"].isin(tenants)].assign(measure=measure, node="")[[*COLUMNS, "ds", "y"]]


def _by_namespace(found: pd.DataFrame) -> pd.DataFrame:
    """Cards of the exporter by the namespace of their pod; slices as shares of one."""
    frame = labelled(found, "exported_namespace", "namespace", "modelName", "GPU_I_PROFILE")
    # An exporter whose own labels are kept calls the namespace of the pod by the other name.
    name = "exported_namespace" if frame["exported_namespace"].ne("").any() else "namespace"
    profile = frame["GPU_I_PROFILE"]
    shares = profile.map({each: float(gpu_share(each)) for each in set(profile)}).astype("float64")
    return frame.assign(
        namespace=frame[name], gpu_type=frame["modelName"].mask(profile.ne(""), profile), y=frame["y"] * shares
    )


def with_nodes(found: pd.DataFrame) -> pd.DataFrame:
    """Samples whose node is named ``node``, after its cluster where several are scraped into one Prometheus."""
    frame = found.rename(columns={"Hostname": "node"})
    if "cluster" not in frame or "node" not in frame:
        return frame
    cluster = frame["cluster"].astype(object).fillna("")
    return frame.assign(node=(cluster + "/" + frame["node"]).where(cluster.ne(""), frame["node"]))


def labelled(found: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Samples with all of some labels, empty where one is lacking."""
    frame = found.reindex(columns=[*dict.fromkeys([*names, *found.columns.intersection(COLUMNS)]), "ds", "y"])
    return frame.assign(
        **{name: frame[name].astype(object).fillna("") for name in frame.columns.difference(["ds", "y"])}
    )
