"""Checks of GPU groups: each has one reservation pod, which holds the GPU for the group's pods."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from cluster.access.answers.pods import Pod
from gpu_sharing.arithmetic import read_label, shared_mib
from gpu_sharing.request import GPU_GROUP, gpu_groups
from manifests.node_labels import GPU_MEMORY
from operations.doctor.check import Finding, Severity, Subject, of_group, of_node, of_pod
from operations.doctor.checks.reservation_pods import pod_finding, reservation_check
from operations.doctor.facts import NOT_ADMITTED, Facts, Source
from operations.doctor.requests import asks_for_share, gpu_request
from sharing_map.view import mib_of


def _stale(facts: Facts) -> Iterator[Finding]:
    place = {pod.namespace for pod in facts.reservation_pods}
    used = {
        group
        for pod in facts.snapshot.pods
        if pod.namespace not in place and not pod.ended
        for group in gpu_groups(pod.as_manifest())
    }
    requested = {group for request in facts.snapshot.bind_requests for group in request.groups}
    for pod in facts.reservation_pods:
        group = pod.labels[GPU_GROUP]
        stays = not (pod.ended or pod.deleted or facts.is_young(pod))
        if stays and group not in used | requested:
            yield pod_finding(
                pod,
                f"reservation pod {pod.name} holds a GPU of node '{pod.node}' for nobody.",
                f"label {GPU_GROUP}={group}: no pod and no BindRequest has it",
            )


def _duplicates(facts: Facts) -> Iterator[Finding]:
    by_group = defaultdict[str, list[Pod]](list)
    for pod in facts.reservation_pods:
        if not pod.ended and not pod.deleted:
            by_group[pod.labels[GPU_GROUP]].append(pod)
    for group, pods in sorted(by_group.items()):
        if len(pods) > 1:
            # The oldest one stays.
            pods.sort(key=lambda pod: pod.created or facts.snapshot.taken)
            yield pod_finding(
                pods[1],
                f"GPU group {group} has {len(pods)} reservation pods: each holds a GPU.",
                *(f"Pod {pod.namespace}/{pod.name} on {pod.node}" for pod in pods),
            )


def _without_pod(facts: Facts) -> Iterator[Finding]:
    groups = {pod.labels[GPU_GROUP] for pod in facts.reservation_pods}
    for pod in facts.snapshot.pods:
        settled = pod.node and not (pod.ended or pod.deleted or facts.is_young(pod))
        if not settled or pod.namespace == facts.reservation_namespace:
            continue
        if missing := [group for group in gpu_groups(pod.as_manifest()) if group not in groups]:
            yield pod_finding(
                pod,
                f"pod {pod.namespace}/{pod.name} shares a GPU of node '{pod.node}' that no reservation pod holds.",
                *(
                    f"label {GPU_GROUP}={group}: no reservation pod in namespace {facts.reservation_namespace} has it"
                    for group in missing
                ),
            )


def _ended(facts: Facts) -> Iterator[Finding]:
    holding = {pod.labels[GPU_GROUP] for pod in facts.reservation_pods if not pod.ended}
    sharing = defaultdict[str, list[Pod]](list)
    for pod in facts.snapshot.pods:
        if pod.node and not pod.ended and pod.namespace != facts.reservation_namespace:
            for group in gpu_groups(pod.as_manifest()):
                sharing[group].append(pod)
    for pod in facts.reservation_pods:
        group = pod.labels[GPU_GROUP]
        # What the kubelet refused has never held one (KA0509).
        held = pod.ended and pod.reason != NOT_ADMITTED and group not in holding
        if held and sharing[group]:
            finding = pod_finding(
                pod,
                f"reservation pod {pod.name} on node '{pod.node}' has ended, and pods run on the GPU that it held.",
                f"Pod {pod.namespace}/{pod.name}: {pod.phase}: {pod.reason or 'no reason'}: {pod.message or '-'}",
                *(f"Pod {pod.namespace}/{pod.name}: label {GPU_GROUP}={group}" for pod in sharing[group]),
            )
            yield replace(finding, about=finding.about | {of_pod(pod.namespace, pod.name) for pod in sharing[group]})


def _overbooked(facts: Facts) -> Iterator[Finding]:
    labels = {name: read_label(node.labels.get(GPU_MEMORY)) for name, node in facts.nodes.items()}
    shared = {name: shared_mib(label) for name, label in labels.items() if label is not None}
    held = {(pod.node, pod.labels[GPU_GROUP]) for pod in facts.reservation_pods if not pod.ended}
    promised = defaultdict[tuple[str, str], list[tuple[Pod, int]]](list)
    for pod in facts.snapshot.pods:
        if pod.node not in shared or pod.ended or pod.scheduler != facts.scheduler_name or not asks_for_share(pod):
            continue
        mib = mib_of(gpu_request(pod), shared[pod.node])
        for group in gpu_groups(pod.as_manifest()):
            if mib is not None and (pod.node, group) in held:
                promised[pod.node, group].append((pod, mib))
    for (node, group), pods in sorted(promised.items()):
        more = sum(mib for _, mib in pods) - shared[node]
        if more > 0:
            names = (of_pod(pod.namespace, pod.name) for pod, _ in pods)
            yield Finding(
                Subject("Node", node, annotations=facts.nodes[node].annotations),
                f"pods on a GPU of node '{node}' have been promised {more} MiB more than KAI shares of it, "
                f"{shared[node]} MiB.",
                (
                    f"Node {node}: {GPU_MEMORY}={labels[node]}",
                    *(f"Pod {pod.namespace}/{pod.name}: {mib} MiB" for pod, mib in pods),
                ),
                about=frozenset({of_node(node), of_group(group), *names}),
            )


CHECKS = (
    reservation_check(
        "KA0511",
        "A GPU group has several reservation pods",
        _duplicates,
        symptom="GPUs that no workload uses are not free.",
        cause="KAI before 0.16 gave reservation pods random names and made another one at each retry.",
        remedy="Upgrade KAI. Until then delete the newer pods of the group: kubectl --namespace {namespace} delete "
        "pod {name}",
        source="KAI #1673, PR #1693",
        explains={"KA0705"},
    ),
    reservation_check(
        "KA0510",
        "A reservation pod holds a GPU for nobody",
        _stale,
        severity=Severity.WARNING,
        needs={Source.PODS, Source.CONFIG, Source.BIND_REQUESTS},
        symptom="A GPU is taken, and no workload uses it.",
        cause="The binder did not run when the last pod of the group ended, or it was restarted in between.",
        remedy="The binder removes it when it next looks at the group. Or: kubectl --namespace {namespace} delete pod "
        "{name}",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go",
        explains={"KA0705"},
    ),
    reservation_check(
        "KA0515",
        "A pod shares a GPU that nobody holds",
        _without_pod,
        symptom="KAI's binder deletes the pod when it binds another one to that GPU, or starts.",
        cause="Somebody deleted its reservation pod, or KAI with it, or its node went away and came back. KAI 0.17 "
        "deletes a new one itself now and then, where an earlier try to bind the pod had failed.",
        remedy="Let it be made again: a Deployment or Job does so by itself. Do not delete reservation pods.",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go",
    ),
    reservation_check(
        "KA0519",
        "A reservation pod has ended while pods share its GPU",
        _ended,
        symptom="The device plugin gives the GPU to somebody else too; on a node with more GPUs, to another GPU group.",
        cause="The kubelet evicted the pod, or ended it when the node was shut down. KAI takes it for one that is "
        "there, whatever its phase, and makes no other.",
        remedy="Have the pods that share the GPU made again, as their work allows: KAI gives them a GPU "
        "that is held. KAI removes the ended pod with the last of them; else: kubectl --namespace {namespace} delete "
        "pod {name}",
        source="KAI v0.17.0 pkg/binder/binding/resourcereservation/resource_reservation.go (syncForPods)",
    ),
    reservation_check(
        "KA0520",
        "More of a GPU's memory is promised than it has",
        _overbooked,
        severity=Severity.WARNING,
        needs={Source.PODS, Source.CONFIG, Source.NODES},
        symptom="Programs fail with out of memory though each keeps to its share. KAI places no more pods there.",
        cause="The node's memory was made smaller while pods had their shares of it.",
        remedy="Delete pods of these until the others fit: a Deployment or Job makes them again, and KAI places them "
        "where there is room. If the memory should not be smaller, set gpu_memory_mib of the node again.",
        source="KAI v0.17.0 docs/gpu-sharing: the label nvidia.com/gpu.memory",
    ),
)
