"""Pods that run on shared GPUs, and that this run leaves without what holds their share."""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from config.kai import GpuSharingMode
from config.stack import StackSettings
from gpu_sharing.request import GPU_GROUP
from manifests import kai, reservation
from manifests.wording import first_of


@dataclass(frozen=True)
class RunningPods:
    """Pods with a share of a GPU, as namespace/name.

    Attributes:
        deleted: those that KAI's binder deletes when it starts: nobody holds their GPU.
        refused: the others, where the stack switches fractions off: KAI refuses what is made in their place.
    """

    deleted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def read_running_pods(cluster: Cluster, settings: StackSettings, state: DeployedState) -> RunningPods:
    """Those of an earlier installation of KAI, or of this one's earlier mode.

    Asked as the binder itself asks when it starts (KAI v0.17.0 pkg/binder/binding/resourcereservation, Sync), where the
    stack has yet to install KAI. Nothing without the right to see pods.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    is_installed = kai.RELEASE in {release for _, release in state.releases}
    is_off = settings.kai.gpu_sharing_mode is GpuSharingMode.DISABLED
    if is_installed and not is_off:
        return RunningPods()
    try:
        pods = cluster.objects("/api/v1/pods", Pod, params={"labelSelector": GPU_GROUP})
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return RunningPods()
    groups = [(pod, pod.labels[GPU_GROUP]) for pod in pods if GPU_GROUP in pod.labels]
    held = {group for pod, group in groups if pod.namespace == reservation.NAMESPACE}
    running = sorted(
        (f"{pod.namespace}/{pod.name}", is_installed or group in held)
        for pod, group in groups
        if pod.namespace != reservation.NAMESPACE and pod.phase == "Running"
    )
    return RunningPods(
        deleted=tuple(name for name, stays in running if not stays),
        refused=tuple(name for name, stays in running if stays and is_off),
    )


def judge_running_pods(pods: RunningPods) -> Iterator[Finding]:
    """What becomes of them."""
    if pods.deleted:
        yield Finding(
            f"pods run on shared GPUs from an earlier installation of KAI, and no reservation pod holds these GPUs: "
            f"{first_of(pods.deleted)}. KAI deletes these pods when it starts.",
            "What a Deployment or a Job made is made again. Let the others end first.",
            fatal=False,
        )
    if pods.refused:
        yield Finding(
            f"kai.gpu_sharing_mode 'disabled' shares no GPUs, and pods run with a fraction of one: "
            f"{first_of(pods.refused)}. They go on, and KAI refuses those that are made in their place.",
            "Let them ask for whole GPUs, or leave kai.gpu_sharing_mode as it was.",
            fatal=False,
        )
