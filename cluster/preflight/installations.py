"""GPU Operators and KAI schedulers that run in the cluster already, under whatever name and in whatever namespace."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cluster.access.answers.objects import Installed
from cluster.access.client import Cluster
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from config.stack import StackSettings
from manifests import gpu_operator, kai

_GPU_OPERATOR_IMAGE = re.compile(r"(^|/)gpu-operator([:@]|$)")
_KAI_IMAGE = re.compile(r"(^|/)kai-scheduler/[^/]+$")
"""Both charts' images keep these names in a mirror that is set as docs/air-gapped.md says, and under every release."""


@dataclass(frozen=True)
class Installations:
    """What runs already and is not the stack's.

    Attributes:
        gpu_operators: where, in words.
        kais: the same.
        gpu_clusters: GPUClusters, in words. A stack has none.
    """

    gpu_operators: tuple[str, ...] = ()
    kais: tuple[str, ...] = ()
    gpu_clusters: tuple[str, ...] = ()


def read_installations(cluster: Cluster, settings: StackSettings, state: DeployedState) -> Installations:
    """Look in every namespace, unless the stack has installed both itself: then Helm has looked.

    GPUClusters are always looked for: one may be made at any time, and whoever runs the operator, it can't work beside.
    """
    clusters = tuple(f"GPUCluster '{gpu_cluster.name}'{_from(gpu_cluster)}" for gpu_cluster in cluster.gpu_clusters())
    operator = (settings.gpu_operator.namespace, gpu_operator.RELEASE)
    scheduler = (settings.kai.namespace, kai.RELEASE)
    installed = {release for _, release in state.releases}
    look_for_operators = settings.gpu_operator.install and gpu_operator.RELEASE not in installed
    look_for_kais = kai.RELEASE not in installed
    if not look_for_operators and not look_for_kais:
        return Installations(gpu_clusters=clusters)
    deployments = cluster.deployments()
    operators: list[str] = []
    if look_for_operators:
        policies = _others(cluster.cluster_policies(), operator)
        operators += [f"ClusterPolicy '{policy.name}'{_from(policy)}" for policy in policies]
        operators += _places(deployments, _GPU_OPERATOR_IMAGE, operator)
    kais = _places(deployments, _KAI_IMAGE, scheduler) if look_for_kais else []
    return Installations(tuple(operators), tuple(kais), clusters)


def judge_installations(installations: Installations) -> Iterator[Finding]:
    """What may not be doubled."""
    if installations.gpu_clusters:
        yield Finding(
            f"the cluster has {'; '.join(installations.gpu_clusters)}: the GPU Operator (v26.7) works with a "
            "GPUCluster or with the ClusterPolicy that KAI and this stack need, and with neither where both are there.",
            "Choose another context. Or ask whoever made it whether it may go: it is not this stack's to delete, and "
            "the GPUs of pods that claim them through it go with it.",
        )
    if installations.gpu_operators:
        yield Finding(
            f"the cluster has a GPU Operator that is not this stack's: {'; '.join(installations.gpu_operators)}.",
            "Use it: set gpu_operator.install: false. Or choose another context. Two would take turns on every node.",
        )
    if installations.kais:
        yield Finding(
            f"the cluster has a KAI scheduler that is not this stack's: {'; '.join(installations.kais)}.",
            "Choose another context, or ask whoever runs it: two would promise the same GPUs twice, so this stack is "
            "not installed beside it.",
        )


def _places(deployments: Iterable[Installed], image: re.Pattern[str], ours: tuple[str, str]) -> list[str]:
    matching = [
        deployment
        for deployment in deployments
        if any(image.search(container.image) for container in deployment.containers)
    ]
    by_namespace: dict[str, list[Installed]] = {}
    for deployment in _others(matching, ours):
        by_namespace.setdefault(deployment.namespace, []).append(deployment)
    places = []
    for namespace, installed in sorted(by_namespace.items()):
        names = ", ".join(sorted(f"'{deployment.name}'" for deployment in installed))
        release = next((text for deployment in installed if (text := _from(deployment))), "")
        places.append(f"Deployment {names} in namespace '{namespace}'{release}")
    return places


def _others(deployments: Iterable[Installed], ours: tuple[str, str]) -> list[Installed]:
    """Without what our own release brought before its run was killed, and what its operator made from that."""
    return [
        deployment
        for deployment in deployments
        if deployment.release != ours and not (deployment.release is None and deployment.namespace == ours[0])
    ]


def _from(deployment: Installed) -> str:
    if deployment.release is None:
        return ""
    namespace, name = deployment.release
    return f" (Helm release '{name}' in namespace '{namespace}')"
