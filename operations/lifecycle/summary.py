"""The short text at the end of `make up`: what runs where, what is simulated, what to try next."""

import os
import shlex
from collections.abc import Mapping

from rich import box
from rich.table import Table

from cluster.access.answers.nodes import Node
from config.kai import GpuSharingMode
from config.reservation import Privilege
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from manifests.admission_objects import binder
from manifests.node_labels import GPU_MEMORY, PLATFORM, PLATFORM_TEGRA
from manifests.reservation import NAMESPACE, nodes_by_privilege
from operations.plain_text import PlainText


def of_hosts(stack: str, outputs: Mapping[str, object]) -> str:
    """The summary of a stack of hosts alone.

    Args:
        stack: its name.
        outputs: the stack's outputs.
    """
    memory = outputs.get("gpu_memory_mib")
    lines = [f"The hosts of stack '{stack}' are ready. Another stack of their cluster installs KAI."]
    if isinstance(memory, dict) and memory:
        lines += ["There, gpu_memory_mib of these nodes is at most:"]
        lines += [f"  {node}: {mib}" for node, mib in sorted(memory.items())]
    return "\n".join(lines)


def render(  # noqa: PLR0913 - every part of the text comes from somewhere else
    *,
    stack: str,
    server: str,
    version: str,
    settings: StackSettings,
    nodes: Mapping[str, Node],
    outputs: Mapping[str, object],
    simulated: tuple[str, ...],
    runs_kai: bool,
    kubeconfig: str,
    context: str,
    width: int,
) -> str:
    """The summary as plain text.

    Args:
        stack: its name.
        server: the API server's address.
        version: its version.
        settings: the stack's settings.
        nodes: the cluster's nodes by name.
        outputs: the stack's outputs.
        simulated: what is not real, in words.
        runs_kai: whether KAI's own programs run where the rest is simulated.
        kubeconfig: the file to use with kubectl.
        context: the context to use with it; empty for the file's current one.
        width: columns of the text; commands to copy are never cut.
    """
    console = PlainText(width)
    console.print(f"Stack '{stack}' is up on {server} (Kubernetes {version}).\n")
    console.print(_node_table(settings, nodes))
    queues = outputs.get("queues")
    names = ", ".join(str(queue) for queue in queues) if isinstance(queues, list) else ""
    if settings.gpu_operator.install:
        console.print(
            f"GPU Operator {outputs.get('gpu_operator_version')} in namespace {settings.gpu_operator.namespace}"
        )
    console.print(f"KAI scheduler {outputs.get('kai_version')} in namespace {settings.kai.namespace}; queues: {names}")
    if settings.overrides_apply:
        console.print(f"Reservation pods in namespace {NAMESPACE} get {_given(settings)}, and nothing on others.")
    for what in simulated:
        console.print(f"\n{what}")
    console.print("\nTry next:")
    for line in _next_steps(stack, settings, kubeconfig, context, simulated=bool(simulated), runs_kai=runs_kai):
        console.print(f"  {line}", soft_wrap=True)
    return console.text


def _given(settings: StackSettings) -> str:
    """What reservation pods get, by rung; the nodes are named where they differ."""
    given = {
        Privilege.PRIVILEGED: "libraries, devices and privilege",
        Privilege.DEVICES: "libraries",
        Privilege.NONE: "variables",
    }
    rungs = nodes_by_privilege(settings)
    if len(rungs) == 1:
        return "".join(f"{given[rung]} on Tegra nodes" for rung in rungs)
    return ", ".join(f"{given[rung]} on {' and '.join(nodes)}" for rung, nodes in rungs.items())


def _has_fractions(settings: StackSettings) -> bool:
    """Whether KAI takes pods with fractions; otherwise its admission refuses them."""
    return settings.kai.gpu_sharing_mode is not GpuSharingMode.DISABLED


def _node_table(settings: StackSettings, nodes: Mapping[str, Node]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("Node", "Platform", "GPUs", "MiB per GPU", "Shared by", "Reservation pods"):
        table.add_column(column, overflow="fold")
    sliced = {
        node: profile
        for profile in settings.node_profiles.values()
        if isinstance(profile, TimeSlicingProfile)
        for node in profile.nodes
    }
    by_kai = "KAI, in fractions" if _has_fractions(settings) else "KAI, whole GPUs alone"
    for name, node in sorted(nodes.items()):
        platform = node.labels.get(PLATFORM) or ("x86" if node.gpus else "-")
        tegra = platform == PLATFORM_TEGRA and settings.overrides_apply
        if not node.gpus:
            table.add_row(name, platform, "-", "-", "-", "-")
            continue
        sharing = f"time slicing, {sliced[name].replicas} replicas" if name in sliced else by_kai
        table.add_row(
            name,
            platform,
            str(node.gpus),
            node.labels.get(GPU_MEMORY, "unknown"),
            sharing,
            "with Tegra overrides" if tegra else "as KAI makes them",
        )
    return table


def _next_steps(  # noqa: PLR0913 - what the steps name
    stack: str, settings: StackSettings, kubeconfig: str, context: str, *, simulated: bool, runs_kai: bool
) -> list[str]:
    # Where the settings name the context, kubectl's own is another cluster.
    kubectl = f"kubectl --context {shlex.quote(context)}" if context else "kubectl"
    steps = [
        'eval "$(make env)"   # pulumi, kubectl and the Python environment on PATH',
        f"export KUBECONFIG={shlex.quote(os.path.expanduser(kubeconfig))}",
    ]
    fraction = [f"{kubectl} apply -f examples/fraction.yaml   # a pod that asks for 4 GiB of a GPU"]
    if not _has_fractions(settings):
        fraction = []
    if not simulated:
        return [
            *steps,
            *fraction,
            f"make preview STACK={stack}   # what another `up` would change",
        ]
    if settings.overrides_apply:
        user = binder(settings)
        steps.append(
            f"kubectl create -f examples/reservation-pod.yaml --as {user} --dry-run=server -o yaml"
            "   # what becomes of KAI's reservation pods"
        )
    if runs_kai:
        steps += fraction
    return [
        *steps,
        "kubectl get pods --all-namespaces --output wide",
        f"make preview STACK={stack}   # nothing to change; edit Pulumi.{stack}.yaml and look again",
        f"make down STACK={stack}",
        f"make up STACK={stack} KUBECONFIG=~/.kube/config   # your cluster; first edit Pulumi.{stack}.yaml (EDIT)",
    ]
