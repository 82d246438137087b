"""What preflight finds about the nodes that a stack names, and about those that it does not."""

import difflib
from collections.abc import Iterator, Mapping

from cluster.access.answers.nodes import Node
from cluster.preflight.findings import Finding
from config.platform import TegraPlatform, ToolkitOwner
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from manifests.node_labels import GPU_PRESENT, NVIDIA_PCI_DEVICE, node_labels
from manifests.reservation import RUNTIME_CLASS
from manifests.tolerations import operand_tolerations, setting_for, tolerations
from manifests.wording import first_of

CDI_SINCE = (1, 7)
"""The release line of containerd that knows CDI."""

_PODS_TOO = "Pods that use the GPUs have to tolerate it too."


def judge_nodes(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Every finding about nodes."""
    yield from judge_stack_nodes(settings, nodes)
    yield from judge_fake_gpus(nodes)
    yield from _runtimes(settings, nodes)


def judge_stack_nodes(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Every finding that comes from what the stack says of nodes."""
    yield from _nodes(settings, nodes)
    yield from _frontends(settings, nodes)
    yield from _platform(settings, nodes)
    yield from _memory(settings, nodes)
    yield from _jetsons(settings, nodes)
    yield from _hosts(settings, nodes)
    yield from _cdi(settings, nodes)
    yield from _taints(settings, nodes)


def _nodes(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    names = first_of(sorted(nodes)) or "none"
    for name in dict.fromkeys([*node_labels(settings), *remote_nodes(settings)]):
        if name not in nodes:
            near = difflib.get_close_matches(name, nodes, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            yield Finding(
                f"the stack names the node '{name}', which the cluster does not have.{hint}",
                f"Correct the name or join the node. Nodes: {names}.",
            )


def judge_fake_gpus(nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Nodes that make every reservation pod of the cluster a dummy."""
    for name, node in sorted(nodes.items()):
        if node.labels.get("run.ai/fake.gpu") == "true":
            yield Finding(
                f"node '{name}' has the label run.ai/fake.gpu=true: KAI then runs every reservation pod of the cluster "
                "as a sleeping dummy.",
                f"Remove it on a cluster with real GPUs: kubectl label node {name} run.ai/fake.gpu-",
                fatal=False,
            )


def remote_nodes(settings: StackSettings) -> list[str]:
    """The nodes that remote GPUs name: those of backends and frontends."""
    remote = settings.gvirtus
    if remote is None:
        return []
    backends = [backend.node for backend in remote.backends.values() if backend.node is not None]
    return sorted({*backends, *(remote.frontends.nodes if remote.frontends is not None else ())})


def _frontends(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    if settings.gvirtus is None or settings.gvirtus.frontends is None:
        return
    for name in sorted(settings.gvirtus.frontends.nodes):
        labels = nodes[name].labels if name in nodes else {}
        marks = [label for label in (GPU_PRESENT, NVIDIA_PCI_DEVICE) if labels.get(label) == "true"]
        if marks:
            yield Finding(
                f"gvirtus.frontends.nodes has '{name}', which has a GPU of its own ({marks[0]}=true): two device "
                "plugins would take turns there.",
                "Remove the node from gvirtus.frontends.nodes.",
            )


def _platform(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    for name in settings.platform.jetsons:
        if name in nodes and nodes[name].architecture not in {"arm64", ""}:
            yield Finding(
                f"the stack lists '{name}' as a Tegra node, but its architecture is {nodes[name].architecture}.",
                "A Jetson is arm64. Remove the node from platform.tegra_nodes.",
            )


def _memory(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    memory = {name: unified.gpu_memory_mib for name, unified in settings.platform.unified_memory_nodes.items()}
    memory |= {name: tegra.gpu_memory_mib for name, tegra in settings.platform.jetsons.items()}
    for name, mib in sorted(memory.items()):
        if name in nodes and mib is not None and 0 < nodes[name].memory_mib <= mib:
            yield Finding(
                f"node '{name}' has gpu_memory_mib {mib}, but shares {nodes[name].memory_mib} MiB with its GPU.",
                "KAI would promise memory that is not there, or the system needs: set gpu_memory_mib below MemTotal.",
            )


def _jetsons(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Known by JetPack's kernel, as the rule of remote GPUs knows them."""
    kernels = {name: node.kernel for name, node in sorted(nodes.items()) if node.kernel.endswith("-tegra")}
    if unlisted := [f"'{name}' (kernel {kernels[name]})" for name in kernels if name not in settings.platform.jetsons]:
        yield Finding(
            f"Jetsons that the stack does not list: {first_of(unlisted)}. They get no labels, and reservation pods "
            "there get no libraries and no devices.",
            "Add them to platform.tegra_nodes (kind: tegra), unless no pod is to use their GPUs.",
            fatal=False,
        )
    for profile_name, profile in sorted(settings.node_profiles.items()):
        for name in profile.nodes:
            if isinstance(profile, TimeSlicingProfile) and name in settings.platform.jetsons:
                yield Finding(
                    f"node_profiles.{profile_name} slices the time of '{name}', a Jetson: nobody keeps account of "
                    "memory then, and a Jetson's GPU takes it from the system.",
                    "Remove it from the profile, so that KAI shares its GPU in fractions.",
                    fatal=False,
                )


def _hosts(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    for name, host in sorted(settings.hosts.items()):
        if name not in nodes and not host.gone:
            yield Finding(
                f"hosts.{name} is no node of the cluster, so a machine would be changed that is not part of it.",
                f"Correct the name, or join the machine first. Nodes: {first_of(sorted(nodes)) or 'none'}.",
            )


def _taints(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Taints that leave KAI's pods no node, or keep the GPU Operator's operands off one with a GPU.

    Symptom without it: the run waits until its time is over. One machine that kubeadm made the whole cluster has such a
    taint, that of control planes. A node that advertises GPUs has the operands already.
    """
    stack_tolerations = tolerations(settings.cluster)
    repelling = {name: node.repels(stack_tolerations) for name, node in sorted(nodes.items())}
    if nodes and all(repelling.values()):
        taints = list(dict.fromkeys(taint for of_node in repelling.values() for taint in of_node))
        yield Finding(
            f"every node has a taint that KAI's pods do not tolerate: {first_of(taints)}. They stay Pending.",
            f"Take the taint from a node: kubectl taint node {next(iter(repelling))} {taints[0]}-. Or have the stack's "
            f"pods tolerate it: {setting_for(settings.cluster, taints[:1])}. {_PODS_TOO}",
            fatal=False,
        )
        return
    if not settings.gpu_operator.install:
        return
    of_operands, named = operand_tolerations(settings.cluster), node_labels(settings)
    kept_off: dict[tuple[str, ...], list[str]] = {}
    for name, node in sorted(nodes.items()):
        has_gpus = name in named or GPU_PRESENT in node.labels or node.labels.get(NVIDIA_PCI_DEVICE) == "true"
        if has_gpus and not (node.gpus or node.slices or node.is_frontend) and (taints := node.repels(of_operands)):
            kept_off.setdefault(tuple(taints), []).append(name)
    for repelled, names in kept_off.items():
        yield Finding(
            f"the GPU Operator's pods do not run on {first_of(names)}: taint {', '.join(repelled)}. No GPU is "
            "advertised there.",
            f"Have the stack's pods tolerate it: {setting_for(settings.cluster, repelled)}. {_PODS_TOO} Or take it "
            f"away: kubectl taint node {names[0]} {' '.join(f'{taint}-' for taint in repelled)}.",
            fatal=False,
        )


def _cdi(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """GPU nodes with a containerd from before CDI: Debian 12 and k8s-snap 1.32 have 1.6 (k8s-snap#2388)."""
    if not (settings.gpu_operator.install and settings.gpu_operator.cdi):
        return
    for name, node in sorted(nodes.items()):
        line = node.containerd_line
        has_gpus = (
            node.tells_of_gpus or name in settings.platform.jetsons or node.labels.get(NVIDIA_PCI_DEVICE) == "true"
        )
        if line is not None and line < CDI_SINCE and has_gpus:
            yield Finding(
                f"node '{name}' has {node.container_runtime}, and gpu_operator.cdi needs containerd "
                f"{'.'.join(map(str, CDI_SINCE))} or later: its pods get no GPU.",
                "Upgrade containerd there, or set gpu_operator.cdi: false for the whole cluster.",
                fatal=False,
            )


def _runtimes(settings: StackSettings, nodes: Mapping[str, Node]) -> Iterator[Finding]:
    """Jetsons that nobody prepares: neither this run, nor the GPU Operator.

    Symptom without it: the run waits for GPUs until its time is over, since the device plugin does not start there.
    """
    platform = settings.platform
    if not isinstance(platform, TegraPlatform) or platform.container_toolkit is ToolkitOwner.OPERATOR:
        return
    for name in sorted(platform.jetsons.keys() & nodes.keys() - settings.hosts.keys()):
        if nodes[name].lacks_runtime(RUNTIME_CLASS):
            yield Finding(
                f"node '{name}' has no container runtime '{RUNTIME_CLASS}' "
                f"(status.runtimeHandlers: {', '.join(sorted(nodes[name].runtimes))}): no pod with a GPU starts there.",
                "Have this program prepare it: hosts (docs/hosts.md). Prepared by hand, as docs/distributions.md says, "
                "its containerd has to be restarted.",
                fatal=False,
            )
