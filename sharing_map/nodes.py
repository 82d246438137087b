"""A node of the sharing map: its GPUs, who shares them, and what does not fit together. Pure."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from cluster.pending import kubectl_says, kubelet_says
from config.gvirtus import FRONTEND_ALLOWED
from gpu_sharing.model import MOST_GPUS, MigStrategy
from gpu_sharing.request import GPU, GPU_GROUP, GPU_MEMORY, TIME_SLICE, FractionShare, MemoryShare, WholeGpus
from manifests import reservation_index
from manifests.node_labels import GPU_COUNT, KAI_NODE_POOL, MIG_STRATEGY, PLATFORM, TIME_SLICING_POOL
from manifests.node_labels import GPU_MEMORY as MEMORY_LABEL
from sharing_map.report import Fact, Gpu, NodeStatus, Reservation, Share, Sharing, Use
from sharing_map.view import User, View, pod_name, share


def node_status(name: str, view: View) -> NodeStatus:
    """A node; one that could not be read or is gone, but has pods, is known by its name alone."""
    node = view.nodes.get(name)
    where = f"Node {name}"
    users, reservations = view.pods_of.get(name, []), view.reservations.get(name, [])
    if node is None:
        node = Node.model_validate({"metadata": {"name": name}})
        what = "is gone" if view.knows_nodes else "could not be read"
        ready: Fact[bool | None] = Fact(value=None, proof=f"{where}: {what}")
    else:
        status = node.conditions.get("Ready")
        ready = Fact(
            value=status == "True",
            proof=f"{where} status.conditions[Ready]",
            since=node.condition_changes.get("Ready"),
        )
    count = _gpu_count(node)
    sharing = _sharing(node, count.value)
    shared, pool = view.shared_mib(name), _label(node, view.snapshot.pool_label)
    # KAI gives away what is advertised, whatever the label says: a GPU that is not well is not.
    usable = node.usable_gpus if sharing.value == "kai" else count.value
    if view.knows_pods:
        most = max(usable, count.value)
        has_none = view.knows_nodes and not most
        gpus, others = _gpus(users, reservations, sharing.value, shared, usable=usable, most=most, has_none=has_none)
    else:
        gpus, others = [_unmeasured("unknown")] * usable, []
    return NodeStatus(
        name=name,
        ready=ready,
        cordoned=Fact(value=node.unschedulable, proof=f"{where} spec.unschedulable"),
        taints=Fact(value=tuple(node.keeps_off), proof=f"{where} spec.taints"),
        platform=_label(node, PLATFORM),
        architecture=node.architecture,
        pool=pool,
        sharing=sharing,
        gpu_count=count,
        advertised=_advertised(node),
        memory_label=_label(node, MEMORY_LABEL),
        shared_mib=shared,
        gpus=tuple(gpus),
        other_pods=tuple(others),
        remarks=(
            *_remarks(node, gpus, sharing.value, shared, pool.value),
            *_group_remarks(gpus),
            *_surplus_remarks(gpus, reservations),
            *_unplaced_remarks(users),
        ),
    )


def _label(node: Node, label: str) -> Fact[str | None]:
    return Fact[str | None](
        value=node.labels.get(label),
        proof=f"Node {node.name} metadata.labels[{label}]",
        since=node.label_since(label),
    )


def _gpu_count(node: Node) -> Fact[int]:
    """As KAI counts them (node_info.go, GetNumberOfGPUsInNode): by the label, else what is allocatable.

    Of a node that advertises GPUs, a label that is 0 is wrong, and KAI shares them all the same. A frontend has none,
    whatever its label says.
    """
    if node.labels.get(FRONTEND_ALLOWED) == "true":
        return Fact(value=0, proof=f"Node {node.name} metadata.labels[{FRONTEND_ALLOWED}]")
    if node.gpu_count is not None and (node.gpu_count or not node.gpus):
        fact = _label(node, GPU_COUNT)
        return Fact(value=node.gpu_count, proof=fact.proof, since=fact.since)
    return Fact(
        value=node.usable_gpus,
        proof=f"Node {node.name} status.allocatable[{GPU}], without GPUs in the label {GPU_COUNT}",
    )


def _advertised(node: Node) -> Fact[int]:
    slices = (*sorted(node.slices), *((TIME_SLICE,) if node.time_slices else ()))
    proof = f"Node {node.name} status.allocatable[{', '.join((GPU, *slices))}]"
    return Fact(value=node.devices + sum(node.slices.values()) + node.time_slices, proof=proof)


def _sharing(node: Node, count: int) -> Fact[Sharing]:
    where = f"Node {node.name}"
    allocatable = f"{where} status.allocatable[{GPU}]"
    if node.labels.get(FRONTEND_ALLOWED) == "true":
        return Fact(value="remote", proof=f"{where} metadata.labels[{FRONTEND_ALLOWED}]")
    if field := _time_sliced_by(node, count):
        return Fact(value="time-slicing", proof=f"{where} {field}")
    if node.mig in {MigStrategy.SINGLE, MigStrategy.MIXED}:
        return Fact(value="mig", proof=f"{where} metadata.labels[{MIG_STRATEGY}]")
    if count or node.gpus:
        return Fact(value="kai", proof=allocatable)
    return Fact(value="none", proof=allocatable)


def _time_sliced_by(node: Node, count: int) -> str:
    """What of a node says that the device plugin slices its time; empty for nothing."""
    if node.labels.get(KAI_NODE_POOL) == TIME_SLICING_POOL:
        return f"metadata.labels[{KAI_NODE_POOL}]"
    if node.time_slices and not node.gpus:
        return f"status.allocatable[{TIME_SLICE}]"
    if GPU_COUNT in node.labels and node.usable_gpus > count > 0:
        return f"status.allocatable[{GPU}] is more than metadata.labels[{GPU_COUNT}]"
    return ""


def _gpus(  # noqa: PLR0913 - what is known of the node
    users: Sequence[User],
    reservations: Sequence[Pod],
    sharing: Sharing,
    shared: int | None,
    *,
    usable: int,
    most: int,
    has_none: bool,
) -> tuple[list[Gpu], list[Share]]:
    """The GPUs of a node, those that are shared first; and the pods of which nothing says which GPU they have."""
    on_group: dict[str, list[User]] = defaultdict(list)
    held = {pod.labels[GPU_GROUP] for pod in reservations}
    whole: list[User] = []
    others: list[User] = []
    for user in users:
        # Anybody may label pods with any groups, and name nodes that have no GPU or are not there at all; those groups
        # that KAI made have a reservation pod.
        groups = [
            group
            for group in user.groups[:MOST_GPUS]
            if group in held or (not has_none and (group in on_group or len(on_group) < MOST_GPUS))
        ]
        if isinstance(user.request, MemoryShare | FractionShare) and groups:
            for group in groups:
                on_group[group].append(user)
        # Whoever names the node himself may ask for any number of GPUs, and has none of them before he runs. Of a node
        # that tells of no GPU nothing says that the pod has one.
        elif (
            isinstance(user.request, WholeGpus)
            and sharing not in {"time-slicing", "remote"}
            and most
            and (user.request.count <= most or user.pod.phase == "Running")
        ):
            whole.append(user)
        else:
            others.append(user)
    taken = [
        _measured("whole", shared, share(user, shared))
        for user in whole
        for _ in range(min(user.request.count, most) if isinstance(user.request, WholeGpus) else 0)
    ]
    # Of several of one group, one that has not ended.
    holders = {pod.labels[GPU_GROUP]: pod for pod in sorted(reservations, key=lambda pod: not pod.ended)}
    left = max(0, usable - len(on_group) - len(taken))
    shown = on_group.keys() | _without_pods(reservations, on_group)[:left]
    gpus = [_shared(group, holders.get(group), on_group.get(group, []), shared) for group in sorted(shown)] + taken
    rest = {"time-slicing": _unmeasured("time-sliced"), "mig": _unmeasured("mig")}.get(sharing) or _measured(
        "free", shared
    )
    return gpus + [rest] * (usable - len(gpus)), [share(user, shared) for user in others]


def _without_pods(reservations: Sequence[Pod], on_group: Container[str]) -> Sequence[str]:
    """Groups that have a reservation pod alone, those first whose pod stays.

    To KAI their GPUs are among those that are left (node_info.go, addTaskResources), however many such groups there
    are: where the binder tries again it takes another group, and the reservation pod of the one before goes later.
    """
    alone = {pod.labels[GPU_GROUP]: pod.deleted is not None for pod in reservations if not pod.ended}
    return sorted((group for group in alone if group not in on_group), key=lambda group: (alone[group], group))


def _measured(use: Use, shared: int | None, *shares: Share) -> Gpu:
    """A GPU that one pod has all of, or none has."""
    taken = None if shared is None else shared * bool(shares)
    free = None if shared is None or taken is None else shared - taken
    return Gpu(use=use, group=None, reservation=None, total_mib=shared, taken_mib=taken, free_mib=free, shares=shares)


def _unmeasured(use: Use) -> Gpu:
    """A GPU of whose memory KAI keeps no account."""
    return Gpu(use=use, group=None, reservation=None, total_mib=None, taken_mib=None, free_mib=None, shares=())


def _shared(group: str, holder: Pod | None, users: Sequence[User], shared: int | None) -> Gpu:
    shares = tuple(share(user, shared) for user in users)
    amounts = [user_share.mib for user_share in shares if user_share.mib is not None]
    taken = sum(amounts) if shared is not None and len(amounts) == len(shares) else None
    return Gpu(
        use="shared",
        group=group,
        reservation=_reservation(holder) if holder else None,
        total_mib=shared,
        taken_mib=taken,
        free_mib=None if taken is None or shared is None else shared - taken,
        shares=shares,
    )


def _reservation(pod: Pod) -> Reservation:
    uuid = pod.annotations.get(reservation_index.UUID)
    written_by_kai = pod.annotations.get(reservation_index.WRITTEN_BY_KAI)
    name = reservation_index.UUID if uuid else reservation_index.WRITTEN_BY_KAI
    return Reservation(
        name=pod.name,
        phase=Fact(value=pod.phase, proof=f"{pod_name(pod)} status.phase", since=pod.since("Ready") or pod.created),
        kubectl_status=kubectl_says(pod),
        waits=kubelet_says(pod) or None,
        device=Fact(
            value=uuid or written_by_kai or None,
            proof=f"{pod_name(pod)} metadata.annotations[{name}]",
            since=pod.metadata_writes.get(name),
        ),
    )


def _remarks(node: Node, gpus: Sequence[Gpu], sharing: Sharing, shared: int | None, pool: str | None) -> Iterator[str]:
    """What does not fit together on the node itself."""
    label, count = node.labels.get(MEMORY_LABEL), _gpu_count(node).value
    if sharing == "kai" and not shared:
        said = "which is no number of MiB" if shared is None else "of which KAI shares nothing"
        why = f"is '{label}', {said}" if label else "is missing"
        yield f"The label {MEMORY_LABEL} {why}: KAI places no pod with {GPU_MEMORY} here."
    if node.tells_of_gpus and not (node.gpus or node.slices or node.time_slices):
        yield f"The device plugin advertises no {GPU}, so KAI places nothing here."
    if sharing == "kai" and count > node.usable_gpus > 0:
        yield (
            f"It advertises {node.gpus} {GPU}, and the label {GPU_COUNT} is {node.labels[GPU_COUNT]}: KAI gives the "
            "memory of the same GPU away more than once. Both should be the number of GPUs."
        )
    if sharing == "time-slicing" and node.usable_gpus > count > 0 and not pool:
        yield (
            f"It advertises {node.gpus} {GPU}, and the label {GPU_COUNT} is {count}: KAI takes each for a GPU of its "
            "own, and gives the same memory away more than once."
        )
    taken = sum(gpu.in_use for gpu in gpus)
    if count and taken > count:
        yield f"KAI counts {taken} GPUs in use where there are {count}: the same memory is promised more than once."
    groups_by_device = Counter(gpu.reservation.device.value for gpu in gpus if gpu.reservation and gpu.in_use)
    for device, times in sorted((device, times) for device, times in groups_by_device.items() if device and times > 1):
        yield f"{times} GPU groups are on the one GPU {device}: its memory is promised {times} times."


def _group_remarks(gpus: Sequence[Gpu]) -> Iterator[str]:
    """What does not fit together in its GPU groups."""
    for gpu in gpus:
        if gpu.group is None:
            continue
        if gpu.free_mib is not None and gpu.free_mib < 0:
            yield f"Pods of GPU group {gpu.group} have been promised {-gpu.free_mib} MiB more than KAI shares."
        if gpu.reservation is None:
            yield f"GPU group {gpu.group} has no reservation pod: KAI's binder deletes its running pods."
        elif gpu.reservation.ended:
            yield (
                f"The reservation pod {gpu.reservation.name} has ended ({gpu.reservation.kubectl_status}), and KAI "
                f"makes no other: nothing holds the GPU of group {gpu.group}, and it may be given to somebody else."
            )
        elif gpu.reservation.device.value is None:
            yield f"The reservation pod {gpu.reservation.name} has not answered yet which GPU it has."


def _surplus_remarks(gpus: Sequence[Gpu], reservations: Sequence[Pod]) -> Iterator[str]:
    """Reservation pods beyond the node's GPUs, or beyond one of a group."""
    shown = {gpu.group for gpu in gpus}
    holding = Counter(pod.labels[GPU_GROUP] for pod in reservations if not (pod.ended or pod.deleted))
    for group, times in sorted(holding.items()):
        if times > 1:
            yield f"GPU group {group} has {times} reservation pods: each holds a GPU, and KAI counts one."
    for pod in reservations:
        if (group := pod.labels[GPU_GROUP]) not in shown and not pod.ended:
            goes = "is being deleted" if pod.deleted else "is not needed"
            yield (
                f"The reservation pod {pod.name} {goes}: no pod shares its GPU group {group}. While it is there, it "
                "may hold a GPU that another group waits for."
            )


def _unplaced_remarks(users: Sequence[User]) -> Iterator[str]:
    """Pods whose share nothing accounts for."""
    for user in users:
        if isinstance(user.request, MemoryShare | FractionShare) and not user.groups:
            yield f"{user.where} has no GPU group, so KAI has not placed it: it uses a GPU that is counted as free."
