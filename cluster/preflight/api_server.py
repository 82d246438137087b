"""What preflight finds about the API server: its version, and what can carry changes of pods there."""

from collections.abc import Collection, Iterator

from cluster.access.answers.server import Version
from cluster.policy_switches import switch_on
from cluster.preflight.findings import Finding
from config.cluster import OLDEST_KUBERNETES, POLICIES_SINCE, minor_version
from config.reservation import POLICY_CARRIER_WAYS_OUT
from config.stack import StackSettings


def judge_server(settings: StackSettings, version: Version, served: Collection[str]) -> Iterator[Finding]:
    """Whether the API server is what the stack needs.

    Args:
        settings: the stack's settings.
        version: the API server's.
        served: in which versions it has MutatingAdmissionPolicy.
    """
    minor = version.minor_version
    if minor < OLDEST_KUBERNETES:
        yield Finding(
            f"the API server is {version.git}; the guard of the reservation namespace needs 1.30 or later.",
            "Upgrade the cluster.",
        )
    declared = settings.cluster.kubernetes_version
    if declared is not None and minor < minor_version(declared):
        yield Finding(
            f"the API server is {version.git}, older than cluster.kubernetes_version {declared}.",
            "Choose the right context, upgrade the cluster, or correct the setting.",
        )
    yield from _policies(settings, version, served)


def _policies(settings: StackSettings, version: Version, served: Collection[str]) -> Iterator[Finding]:
    if settings.cluster.policies_version in served:
        return
    minor = version.minor_version
    for section in settings.policy_carriers:
        remedy = POLICY_CARRIER_WAYS_OUT[section]
        if "v1beta1" in served:
            why = "which serves MutatingAdmissionPolicy v1beta1 and not v1"
            remedy = "Set cluster.mutating_policies: v1beta1, and cluster.kubernetes_version to the server's."
        elif "v1" in served:
            why = "which serves MutatingAdmissionPolicy v1 and not v1beta1"
            remedy = "Remove cluster.mutating_policies."
        elif minor >= POLICIES_SINCE["v1"]:
            why = "which does not serve MutatingAdmissionPolicy v1: 1.36 does, unless it was switched off"
        elif minor >= POLICIES_SINCE["v1beta1"]:
            why = "which serves MutatingAdmissionPolicy v1beta1 only where somebody switched it on"
            remedy = f"{remedy} To switch it on, {switch_on(settings.cluster.distribution)}"
        else:
            why = "which is older than 1.34"
        yield Finding(f"{section}.carrier 'policy' can't work: the API server is {version.git}, {why}.", remedy)


def can_have(settings: StackSettings, version: Version, served: Collection[str]) -> str:
    """What can carry changes of pods in this cluster, whatever the stack uses.

    Args:
        settings: the stack's settings.
        version: the API server's.
        served: in which versions it has MutatingAdmissionPolicy.
    """
    minor = version.minor_version
    if "v1" in served:
        return "It can have the carrier policy (MutatingAdmissionPolicy v1)."
    if "v1beta1" in served:
        return "It can have the carrier policy (MutatingAdmissionPolicy v1beta1, cluster.mutating_policies)."
    if POLICIES_SINCE["v1beta1"] <= minor < POLICIES_SINCE["v1"]:
        return (
            "It can have the carrier webhook, and the carrier policy once MutatingAdmissionPolicy v1beta1 is switched "
            f"on: {switch_on(settings.cluster.distribution)}"
        )
    return "It can have the carrier webhook."
