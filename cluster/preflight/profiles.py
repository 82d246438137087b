"""Profiles of the device plugin where somebody else runs the GPU Operator: the stack only gives nodes their label."""

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import AliasPath, Field

from cluster.access.answers.answer import Answer
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from config.sharing import TimeSlicingProfile
from config.stack import StackSettings
from manifests import gpu_operator
from manifests.node_labels import DEVICE_PLUGIN_CONFIG
from manifests.wording import first_of


class _Policy(Answer):
    config: str = Field(default="", validation_alias=AliasPath("spec", "devicePlugin", "config", "name"))


class _ConfigMap(Answer):
    data: dict[str, str] = Field(default={})


@dataclass(frozen=True)
class OthersProfiles:
    """What the device plugin of that operator has.

    Attributes:
        config_map: as namespace/name; empty where its ClusterPolicy names none.
        names: the profiles in it.
    """

    config_map: str = ""
    names: frozenset[str] = frozenset()


def read_others_profiles(cluster: Cluster, settings: StackSettings, state: DeployedState) -> OthersProfiles | None:
    """The profiles; None where the stack brings its own, or needs none, or where nobody can say which there are.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    ours = settings.gpu_operator.install or gpu_operator.RELEASE in {release for _, release in state.releases}
    if ours or not settings.node_profiles:
        return None
    namespace = settings.gpu_operator.namespace
    try:
        policies = cluster.objects("/apis/nvidia.com/v1/clusterpolicies", _Policy)
        name = next((policy.config for policy in policies if policy.config), "")
        if not name:
            return OthersProfiles() if policies else None
        named = {"fieldSelector": f"metadata.name={name}"}
        maps = cluster.objects(f"/api/v1/namespaces/{namespace}/configmaps", _ConfigMap, params=named)
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return None
    return OthersProfiles(f"{namespace}/{name}", frozenset(maps[0].data)) if maps else None


def judge_others_profiles(settings: StackSettings, profiles: OthersProfiles | None) -> Iterator[Finding]:
    """Profiles that the stack names and that operator does not have.

    Symptom without it: the run succeeds. Without any ConfigMap nobody slices the GPUs, and KAI leaves the node alone;
    with one, the device plugin does not start there (k8s-device-plugin v0.20.0 cmd/config-manager/main.go).
    """
    if profiles is None:
        return
    for name, profile in sorted(settings.node_profiles.items()):
        if name in profiles.names:
            continue
        nodes = first_of(profile.nodes)
        if profiles.config_map:
            lacks = f"ConfigMap {profiles.config_map} has {first_of(sorted(profiles.names)) or 'none'}"
            consequence = f"the device plugin would not start on {nodes}"
        elif isinstance(profile, TimeSlicingProfile):
            lacks = "its ClusterPolicy names no ConfigMap with profiles"
            consequence = f"nobody slices the GPUs of {nodes}, and KAI leaves them alone"
        else:
            continue
        yield Finding(
            f"node_profiles.{name} needs the profile '{name}' of the GPU Operator that is there, since "
            f"gpu_operator.install is false and this stack only writes the label {DEVICE_PLUGIN_CONFIG}; {lacks}: "
            f"{consequence}.",
            f"Add the profile '{name}' there: devicePlugin.config.name in that operator's values is the ConfigMap. Or "
            f"remove node_profiles.{name}.",
            fatal=bool(profiles.config_map),
        )
