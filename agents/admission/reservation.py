"""KAI's reservation pods on Tegra nodes get libraries, devices and privilege; all other pods stay as they are."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import msgspec

from agents.admission import files
from agents.admission.errors import RefusalError
from agents.admission.pods import Pod, check_lengths, labels_of, merge, merge_by


class Fragment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is added, and to which pods: the file that `manifests/reservation.py` writes.

    Attributes:
        namespace: of the reservation pods.
        labels: that they carry.
        container: the container that everything is added to.
        runtime_class_name: the pod's RuntimeClass.
        env: environment, merged by name.
        volumes: merged by name.
        volume_mounts: merged by path.
        security_context: fields of the container's.
    """

    namespace: str
    labels: dict[str, str]
    container: str
    runtime_class_name: str
    env: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    volume_mounts: list[dict[str, Any]]
    security_context: dict[str, Any]

    @staticmethod
    def from_file(path: Path) -> "Fragment":
        """Read the mounted file.

        Raises:
            SettingsError: it is missing or wrong.
        """
        return files.read(path, Fragment)


def mutate(pod: Pod, namespace: str, fragment: Fragment, tegra_nodes: AbstractSet[str]) -> Pod:
    """The pod as it has to be on its node.

    Namespace and labels are checked here too: whoever widens the webhook's selectors gets no privilege by it.

    Args:
        pod: the pod to be created; KAI sets its node itself.
        namespace: where it is created.
        fragment: what is added.
        tegra_nodes: nodes with our platform label.

    Raises:
        RefusalError: it is a reservation pod without the container that everything is added to, or too long.
    """
    spec = pod["spec"]
    is_reservation = namespace == fragment.namespace and fragment.labels.items() <= labels_of(pod).items()
    if not is_reservation or spec.get("nodeName") not in tegra_nodes:
        return pod
    check_lengths(pod)
    names = [container["name"] for container in spec["containers"]]
    if fragment.container not in names:
        raise RefusalError(
            f"a reservation pod on the Tegra node {spec['nodeName']} needs a container named {fragment.container!r}, "
            f"as KAI makes it; this one has: {', '.join(names)}. Another program's pod does not belong into the "
            f"namespace {namespace} with these labels."
        )
    return {
        **pod,
        "spec": {
            **spec,
            "runtimeClassName": fragment.runtime_class_name,
            "volumes": merge_by("name", spec.get("volumes"), fragment.volumes),
            "containers": [
                _mutate_container(container, fragment) if container["name"] == fragment.container else container
                for container in spec["containers"]
            ],
        },
    }


def _mutate_container(container: Mapping[str, Any], fragment: Fragment) -> Mapping[str, Any]:
    return {
        **container,
        "env": merge_by("name", container.get("env"), fragment.env),
        "volumeMounts": merge_by("mountPath", container.get("volumeMounts"), fragment.volume_mounts),
        "securityContext": merge(container.get("securityContext"), fragment.security_context),
    }
