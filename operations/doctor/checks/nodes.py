"""Checks of nodes: what they say of their GPUs, and which of KAI's schedulers serves them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from cluster.access.answers.nodes import Node
from cluster.preflight import findings
from cluster.preflight.first_contact import planned_labels
from cluster.preflight.label_writers import SATURATED_MIB, judge_memory, judge_owners
from cluster.preflight.nodes import judge_fake_gpus, judge_stack_nodes
from cluster.preflight.sharing import ISOLATOR_WEBHOOK, judge_sharing
from cluster.preflight.unified_memory import REMEDY, gpu_memory, judge_unified_memory, requested_mib
from gpu_sharing.arithmetic import read_label, shared_mib
from gpu_sharing.model import MigStrategy
from manifests.node_labels import GPU_COUNT, GPU_MEMORY, GPU_PRESENT, PLATFORM, TIME_SLICING_POOL
from operations.doctor.check import Check, Finding, Severity, Subject, of_node
from operations.doctor.facts import Facts, Source

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def _node_finding(node: Node, what: str, *evidence: str, remedy: str = "") -> Finding:
    here = frozenset({of_node(node.name)})
    return Finding(
        Subject("Node", node.name, annotations=node.annotations), what, evidence, about=here, reach=here, remedy=remedy
    )


def _not_ready(facts: Facts) -> Iterator[Finding]:
    for node in facts.snapshot.nodes:
        if node.conditions and node.conditions.get("Ready") != "True":
            message = node.messages.get("Ready", "")
            yield _node_finding(
                node,
                f"node '{node.name}' is not ready.",
                f"condition Ready={node.conditions.get('Ready', 'missing')}: {message or 'no message'}",
                remedy=_not_ready_remedy(message),
            )


def _not_ready_remedy(message: str) -> str:
    if "default_runtime_name" in message or "no corresponding runtime" in message:
        return (
            "containerd's configuration names a default runtime that it does not have: a drop-in without a runc "
            "section. Complete it and restart containerd on the host."
        )
    if "cgroupsPath" in message:
        return "SystemdCgroup differs between the runtimes: set it to true in containerd's options for runc and nvidia."
    return ""


def _pressure(facts: Facts) -> Iterator[Finding]:
    for node in facts.snapshot.nodes:
        for kind in _PRESSURES:
            if node.conditions.get(kind) == "True":
                yield _node_finding(
                    node,
                    f"node '{node.name}' reports {kind}: its kubelet evicts pods.",
                    f"condition {kind}=True: {node.messages.get(kind) or 'no message'}",
                )


def _no_gpu(facts: Facts) -> Iterator[Finding]:
    for node in facts.gpu_nodes:
        if not (node.gpus or node.slices or node.time_slices):
            yield _node_finding(
                node,
                f"node '{node.name}' has a GPU and advertises none.",
                f"Node {node.name}: status.allocatable has no nvidia.com/gpu",
                f"labels {GPU_PRESENT}={node.labels.get(GPU_PRESENT, 'missing')}, "
                f"{GPU_COUNT}={node.labels.get(GPU_COUNT, 'missing')}",
            )


def _no_memory(facts: Facts) -> Iterator[Finding]:
    for node in facts.kai_gpu_nodes:
        label = node.labels.get(GPU_MEMORY)
        label_mib = read_label(label)
        if not shared_mib(label_mib or 0):
            why = "which is no number of MiB" if label_mib is None else "of which KAI shares nothing"
            state = "is missing" if label is None else f"is '{label}', {why}"
            yield _node_finding(
                node,
                f"node '{node.name}': the label {GPU_MEMORY} {state}.",
                f"Node {node.name}: {GPU_MEMORY}={label if label is not None else 'missing'}",
            )


def _saturated(facts: Facts) -> Iterator[Finding]:
    planned = _planned(facts)
    for node in facts.gpu_nodes:
        yield from _of_node(node, judge_memory(node, planned.get(node.name, {}), facts.stack))


def _others_write(facts: Facts) -> Iterator[Finding]:
    planned = _planned(facts)
    for node in facts.snapshot.nodes:
        yield from _of_node(node, judge_owners(node, planned.get(node.name, {}), facts.stack))


def _planned(facts: Facts) -> dict[str, dict[str, str | None]]:
    return planned_labels(facts.settings) if facts.settings else {}


def _of_node(node: Node, results: Iterable[findings.Finding]) -> Iterator[Finding]:
    for finding in results:
        yield _node_finding(node, finding.what, f"Node {node.name}: {_labels(node)}", remedy=finding.remedy)


def _labels(node: Node) -> str:
    return ", ".join(f"{label}={node.labels[label]}" for label in (GPU_MEMORY, GPU_COUNT) if label in node.labels)


def _no_count(facts: Facts) -> Iterator[Finding]:
    for node in facts.kai_gpu_nodes:
        if node.gpus and not node.gpu_count:
            label = node.labels.get(GPU_COUNT)
            state = "is missing" if label is None else f"is '{label}', and it advertises {node.gpus}"
            yield _node_finding(
                node,
                f"node '{node.name}': the label {GPU_COUNT} {state}.",
                f"Node {node.name}: {GPU_COUNT}={'missing' if label is None else label}, "
                f"allocatable nvidia.com/gpu={node.gpus}",
            )


def _sliced(facts: Facts) -> Iterator[Finding]:
    for node in facts.kai_gpu_nodes:
        count = node.gpu_count
        replicas = node.labels.get("nvidia.com/gpu.replicas")
        # A label that is 0 or no number is another check's: KAI then gives no GPU away twice for it.
        if count and node.usable_gpus > count:
            yield _node_finding(
                node,
                f"node '{node.name}' advertises {node.gpus} GPUs and has {count}: KAI would promise its memory "
                f"{node.gpus // count} times.",
                f"allocatable nvidia.com/gpu={node.gpus}, label {GPU_COUNT}={count}"
                + (f", nvidia.com/gpu.replicas={replicas}" if replicas else ""),
            )


def _fewer(facts: Facts) -> Iterator[Finding]:
    for node in facts.kai_gpu_nodes:
        by_slices = node.mig in {MigStrategy.SINGLE, MigStrategy.MIXED}
        if not by_slices and (node.gpu_count or 0) > node.usable_gpus > 0:
            yield _node_finding(
                node,
                f"node '{node.name}' says that it has {node.labels[GPU_COUNT]} GPUs and advertises {node.gpus}: KAI "
                "promises the memory of the same GPU more than once.",
                f"allocatable nvidia.com/gpu={node.gpus}, capacity nvidia.com/gpu={node.gpu_capacity}, "
                f"label {GPU_COUNT}={node.labels[GPU_COUNT]}",
            )


def _no_shard(facts: Facts) -> Iterator[Finding]:
    pools = {shard.pool for shard in facts.shards}
    intended = {
        name: labels.get(facts.pool_label, "") for name, labels in _planned(facts).items() if facts.pool_label in labels
    }
    for node in facts.gpu_nodes if pools else ():
        pool = node.labels.get(facts.pool_label, "")
        meant = intended.get(node.name) == pool or (facts.settings is None and pool == TIME_SLICING_POOL)
        if pool not in pools and not meant:
            served = ", ".join(sorted(f"'{name}'" if name else "no label" for name in pools))
            yield _node_finding(
                node,
                f"node '{node.name}' is in the node pool '{pool}', which none of KAI's schedulers serves.",
                f"Node {node.name}: {facts.pool_label}={pool or 'missing'}",
                f"SchedulingShards serve: {served}",
            )


def _fake(facts: Facts) -> Iterator[Finding]:
    for node in facts.snapshot.nodes:
        for finding in judge_fake_gpus({node.name: node}):
            # One such node is enough for the whole cluster.
            yield Finding(
                Subject("Node", node.name, annotations=node.annotations),
                finding.what,
                (f"Node {node.name}: run.ai/fake.gpu=true",),
                about=frozenset({of_node(node.name)}),
                remedy=finding.remedy,
            )


def _stack_labels(facts: Facts) -> Iterator[Finding]:
    for name, labels in sorted(_planned(facts).items()):
        node = facts.nodes.get(name)
        if node is None:
            continue
        changed = {
            label: value
            for label, value in labels.items()
            if value is not None
            and node.labels.get(label) != value
            # Those have checks of their own.
            and label != facts.pool_label
            and not (label == GPU_MEMORY and node.labels.get(label) == SATURATED_MIB)
        }
        if changed:
            yield _node_finding(
                node,
                f"node '{name}' does not have the labels that the stack gives it: {', '.join(sorted(changed))}.",
                *(
                    f"Node {name}: {label}={node.labels.get(label, 'missing')}, the stack says {value}"
                    for label, value in sorted(changed.items())
                ),
            )


def _of_stack(
    judge: Callable[[Facts], Iterable[findings.Finding]], *, fatal: bool
) -> Callable[[Facts], Iterator[Finding]]:
    """Preflight's findings of one severity."""

    def judged(facts: Facts) -> Iterator[Finding]:
        for finding in judge(facts):
            if finding.fatal is fatal:
                name = next((name for name in sorted(facts.nodes) if f"'{name}'" in finding.what), "")
                yield Finding(
                    Subject("Node", name, annotations=facts.nodes[name].annotations)
                    if name
                    else Subject("Stack", facts.stack),
                    finding.what,
                    about=frozenset({of_node(name)} if name else ()),
                    reach=frozenset({of_node(name)} if name else ()),
                    remedy=finding.remedy,
                )

    return judged


def _stack_nodes(facts: Facts) -> Iterator[findings.Finding]:
    if facts.settings is not None:
        yield from judge_stack_nodes(facts.settings, facts.nodes)


def _sharing(facts: Facts) -> Iterator[findings.Finding]:
    if facts.settings is not None:
        isolator = any(webhook.name == ISOLATOR_WEBHOOK for webhook in facts.mutating_webhooks)
        yield from judge_sharing(facts.settings, facts.nodes, isolator=isolator)


def _unified(facts: Facts) -> Iterator[findings.Finding]:
    if facts.settings is not None:
        requested = requested_mib(facts.snapshot.pods, gpu_memory(facts.settings))
        yield from judge_unified_memory(facts.settings, facts.nodes, requested)


_check = partial(Check, needs={Source.NODES})


CHECKS = (
    _check(
        "KA0409",
        "A node says that its GPU is a fake",
        _fake,
        symptom="Reservation pods run `ubuntu sleep infinity` on every node, and no GPU gets its UUID.",
        cause="A label `run.ai/fake.gpu=true` on one node makes KAI's operator start the binder for fake GPUs, for the "
        "whole cluster.",
        remedy="kubectl label node {name} run.ai/fake.gpu-",
        source="KAI v0.17.0 pkg/operator/operands/binder/resources.go",
        explains=("KA0508", "KA0513", "KA0514"),
    ),
    _check(
        "KA0401",
        "A node is not ready",
        _not_ready,
        symptom="Pods on the node are evicted, and new ones go elsewhere.",
        cause="Its kubelet does not report, or its container runtime does not answer; the condition says which.",
        remedy="Look at kubelet and containerd on the host: journalctl -u kubelet -u containerd (k3s: -u k3s).",
        source="Kubernetes node conditions; k8s-snap #1991, METR/hawk #273 (a drop-in without runc)",
        explains=("KA0306", "KA0309", "KA0403", "KA0508", "KA0513", "KA0514", "KA0705", "KA0712", "KA0802"),
    ),
    _check(
        "KA0402",
        "A node runs out of memory, disk or processes",
        _pressure,
        severity=Severity.WARNING,
        symptom="Pods are evicted. On a Jetson or a DGX Spark, memory that the GPU uses is the system's own.",
        cause="The kubelet's limit is passed. KAI's `gpu-memory` on shared memory counts against the same memory.",
        remedy="Free it, or keep more back: gpu_memory_mib of the node in the stack, below its memory.",
        source="Kubernetes node-pressure eviction; NVIDIA forum 353752",
    ),
    _check(
        "KA0412",
        "The stack and the nodes do not fit together",
        _of_stack(_stack_nodes, fatal=True),
        symptom="A node that the stack names is not there, or is not what the stack says it is.",
        cause="A name is wrong, a node has left, or hardware was changed.",
        remedy="Correct the stack's settings.",
        source="this program's preflight",
    ),
    _check(
        "KA0413",
        "The stack and the nodes do not fit together well",
        _of_stack(_stack_nodes, fatal=False),
        severity=Severity.WARNING,
        symptom="A Jetson is not in the stack, or the stack names it for something that it can't do.",
        cause="A node has joined since the stack was written, or a profile names it.",
        remedy="Correct the stack's settings.",
        source="this program's preflight",
    ),
    _check(
        "KA0414",
        "A node can't hold pods to their memory",
        _of_stack(_sharing, fatal=True),
        needs={Source.NODES, Source.WEBHOOKS},
        symptom="Fractions are not placed on the node, or run without the limit that KAI promises.",
        cause="The mode kai.gpu_sharing_mode needs a driver or a program that the node does not have.",
        remedy="Use non_memory_enforced, or see what the mode needs: docs/mixed-clusters.md.",
        source="KAI #1967; kai-gpu-fractioning README",
    ),
    _check(
        "KA0415",
        "A node is not ready to hold pods to their memory",
        _of_stack(_sharing, fatal=False),
        severity=Severity.WARNING,
        needs={Source.NODES, Source.WEBHOOKS},
        symptom="KAI places no fraction on the node.",
        cause="What the mode kai.gpu_sharing_mode needs is not there yet.",
        remedy="See what the mode needs: docs/mixed-clusters.md.",
        source="KAI #2157; kai-gpu-fractioning README",
    ),
    _check(
        "KA0416",
        "A machine's memory is given away twice",
        _of_stack(_unified, fatal=False),
        severity=Severity.WARNING,
        needs={Source.NODES, Source.PODS},
        symptom="Programs fail with out of memory, or the kubelet evicts pods, while KAI's books are right.",
        cause="The GPU takes its memory from the system's: what KAI shares and what pods request of the system "
        "add up to "
        "more than there is.",
        remedy=REMEDY,
        source="this program's preflight; KAI #2212",
    ),
    _check(
        "KA0411",
        "A node's labels are not the stack's",
        _stack_labels,
        symptom="Reservation pods of a Jetson get no libraries, operands run where they fail, or KAI counts wrongly.",
        cause=f"Somebody changed or removed a label that the stack gives, such as `{PLATFORM}`.",
        remedy="Put them back: `kai-anywhere repair --stack {stack}`.",
        source="this program: manifests/node_labels.py",
        explains=("KA0306", "KA0310", "KA0404", "KA0406", "KA0504", "KA0505", "KA0508", "KA0520"),
    ),
    _check(
        "KA0410",
        "Somebody else writes a node's labels",
        _others_write,
        severity=Severity.WARNING,
        symptom="Memory or count of GPUs change while pods run.",
        cause="Two field managers own the same label, mostly GPU Feature Discovery beside the stack.",
        remedy="Ask whoever runs it to leave these labels of this node alone, or leave the node out of the stack.",
        source="k8s-device-plugin v0.20.0; Node Feature Discovery",
    ),
    _check(
        "KA0408",
        "No scheduler of KAI's serves a GPU node",
        _no_shard,
        needs={Source.NODES, Source.SHARDS, Source.CONFIG},
        symptom="Pods stay Pending although the node's GPU is free.",
        cause="The node's pool label was set by hand: a shard takes the nodes whose label has its value, and "
        "the default "
        "shard those without the label.",
        remedy="Take the label away, or make a SchedulingShard for that pool: kubectl label node {name} {pool_label}-",
        source="KAI v0.17.0 pkg/apis/kai/v1/schedulingshard_types.go",
        explains=("KA0705",),
    ),
    _check(
        "KA0403",
        "A GPU node advertises no GPU",
        _no_gpu,
        symptom="`kubectl describe node` shows no `nvidia.com/gpu`; pods that ask for one stay Pending.",
        cause="The device plugin does not run there, or finds no GPU: driver, container runtime, profile.",
        remedy="Look at the device plugin's pod on the node: kubectl --namespace {operator_namespace} get pods "
        "--field-selector spec.nodeName={name}",
        source="k8s-device-plugin #1963; GPU Operator #2685",
        explains=("KA0508", "KA0509", "KA0704", "KA0705"),
    ),
    _check(
        "KA0404",
        "A GPU node does not say its memory",
        _no_memory,
        needs={Source.NODES, Source.SHARDS},
        symptom="Pods with `gpu-memory` stay Pending: the gpu memory count on the node was not synced yet. Pods with "
        "`gpu-fraction` are counted as if the GPU had 100 MiB.",
        cause=f"The label `{GPU_MEMORY}` is missing: GPU Feature Discovery can't read the memory of GPUs that "
        "share the "
        "system's (Jetson, DGX Spark, GB10), or does not run.",
        remedy="List the node in the stack with gpu_memory_mib: platform.tegra_nodes or platform.unified_memory_nodes. "
        "For a discrete GPU, look at GPU Feature Discovery's pod on the node.",
        source="KAI #256, #257, #706; k8s-device-plugin v0.20.0 internal/lm/resource.go",
        explains=("KA0704",),
    ),
    _check(
        "KA0405",
        "A GPU node says 4095 MiB",
        _saturated,
        symptom="Pods that ask for more than 4 GB stay Pending on a GPU that has much more.",
        cause="GPU Feature Discovery up to 0.20.1 reads 4095 of every integrated GPU above 4 GiB.",
        remedy="Keep GPU Feature Discovery off the node, and set its memory in the stack.",
        source="k8s-device-plugin v0.20.0 internal/cuda/cuda.go; #2061",
        explains=("KA0410", "KA0705"),
    ),
    _check(
        "KA0406",
        "A GPU node does not say how many GPUs it has",
        _no_count,
        severity=Severity.WARNING,
        needs={Source.NODES, Source.SHARDS},
        symptom="None by itself. With time slicing nobody notices that GPUs are counted more than once.",
        cause=f"The label `{GPU_COUNT}` is missing, 0 or no number: GPU Feature Discovery does not run on the node, or "
        "somebody else wrote it.",
        remedy="List the node in the stack, or look at GPU Feature Discovery's pod on it.",
        source="KAI v0.17.0 pkg/scheduler/api/node_info/gpu_sharing_node_info.go",
    ),
    _check(
        "KA0407",
        "A node advertises more GPUs than it has",
        _sliced,
        needs={Source.NODES, Source.SHARDS},
        symptom="More fractions run than the GPU's memory holds, and programs fail with out of memory.",
        cause="Time slicing and KAI do not go together: KAI takes each replica for a GPU of its own.",
        remedy="Give the node a profile without replicas, or keep KAI off it: node_profiles in the stack.",
        source="KAI #416; v0.17.0 pkg/scheduler/gpu_sharing/gpuSharing.go",
    ),
    _check(
        "KA0417",
        "A node advertises fewer GPUs than it says",
        _fewer,
        needs={Source.NODES, Source.SHARDS},
        symptom="More fractions run than the GPU's memory holds, and programs fail with out of memory.",
        cause=f"The label `{GPU_COUNT}` is more than `nvidia.com/gpu`: KAI then opens another GPU group on a GPU that "
        "has one. The label is wrong, or a GPU is not well, so that the device plugin does not give it away: the "
        "node's capacity still counts that one.",
        remedy="Where capacity is the label's number, see what the device plugin says of the GPU: kubectl --namespace "
        "{operator_namespace} get pods --field-selector spec.nodeName={name}. Cordon the node until the GPU is back. "
        "Else correct the label.",
        source="KAI v0.17.0 pkg/scheduler/api/node_info/gpu_sharing_node_info.go",
    ),
)
