"""GPU Operators and KAI schedulers that run in the cluster already, under whatever name and in whatever namespace."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cluster.client import Cluster, Installed
from cluster.deployed_state import DeployedState
from cluster.findings import Finding
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
    """

    gpu_operators: tuple[str, ...] = ()
    kais: tuple[str, ...] = ()


def read_installations(cluster: Cluster, settings: StackSettings, state: DeployedState) -> Installations:
    """Look in every namespace, unless the stack has installed both itself: then Helm has looked."""
    operator = (settings.gpu_operator.namespace, gpu_operator.RELEASE)
    scheduler = (settings.kai.namespace, kai.RELEASE)
    look_for_operators = settings.gpu_operator.install and operator not in state.releases
    look_for_kais = scheduler not in state.releases
    if not look_for_operators and not look_for_kais:
        return Installations()
    deployments = cluster.deployments()
    operators: list[str] = []
    if look_for_operators:
        policies = _others(cluster.cluster_policies(), operator)
        operators += [f"ClusterPolicy '{policy.name}'{_from(policy)}" for policy in policies]
        operators += _places(deployments, _GPU_OPERATOR_IMAGE, operator)
    return Installations(tuple(operators), tuple(_places(deployments, _KAI_IMAGE, scheduler) if look_for_kais else ()))


def judge_installations(found: Installations) -> Iterator[Finding]:
    """What may not be doubled."""
    if found.gpu_operators:
        yield Finding(
            f"the cluster has a GPU Operator that is not this stack's: {'; '.join(found.gpu_operators)}.",
            "Use it: set gpu_operator.install: false. Or choose another context. Two would take turns on every node.",
        )
    if found.kais:
        yield Finding(
            f"the cluster has a KAI scheduler that is not this stack's: {'; '.join(found.kais)}.",
            "Choose another context, or ask whoever runs it: two would promise the same GPUs twice, so this stack is "
            "not installed beside it.",
        )


def _places(deployments: Iterable[Installed], image: re.Pattern[str], ours: tuple[str, str]) -> list[str]:
    matching = [each for each in deployments if any(image.search(container.image) for container in each.containers)]
    by_namespace: dict[str, list[Installed]] = {}
    for each in _others(matching, ours):
        by_namespace.setdefault(each.namespace, []).append(each)
    told = []
    for namespace, there in sorted(by_namespace.items()):
        names = ", ".join(sorted(f"'{each.name}'" for each in there))
        release = next((text for each in there if (text := _from(each))), "")
        told.append(f"Deployment {names} in namespace '{namespace}'{release}")
    return told


def _others(found: Iterable[Installed], ours: tuple[str, str]) -> list[Installed]:
    """Without what our own release brought before its run was killed, and what its operator made from that."""
    return [each for each in found if each.release != ours and not (each.release is None and each.namespace == ours[0])]


def _from(each: Installed) -> str:
    return "" if each.release is None else f" (Helm release '{each.release[1]}' in namespace '{each.release[0]}')"
