"""Pods that still run from an earlier installation of KAI: what becomes of them once it is installed again."""

from collections.abc import Iterator, Sequence

from cluster.access.answers.pods import Pod
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from gpu_sharing.request import GPU_GROUP
from manifests import kai, reservation
from manifests.wording import first_of


def read_running_pods(cluster: Cluster, state: DeployedState) -> tuple[str, ...]:
    """The pods that KAI's binder deletes when it starts, as namespace/name: they run, and nobody holds their GPU.

    Asked as the binder itself asks then (KAI v0.17.0 pkg/binder/binding/resourcereservation, Sync). Nothing where the
    stack has installed KAI, and nothing without the right to see pods.

    Raises:
        ClusterUnreachableError: if the API server does not answer.
    """
    if kai.RELEASE in {release for _, release in state.releases}:
        return ()
    try:
        pods = cluster.objects("/api/v1/pods", Pod, params={"labelSelector": GPU_GROUP})
    except ClusterUnreachableError:
        raise
    except ClusterError:
        return ()
    groups = [(pod, pod.labels[GPU_GROUP]) for pod in pods if GPU_GROUP in pod.labels]
    held = {group for pod, group in groups if pod.namespace == reservation.NAMESPACE}
    return tuple(
        sorted(
            f"{pod.namespace}/{pod.name}"
            for pod, group in groups
            if pod.namespace != reservation.NAMESPACE and pod.phase == "Running" and group not in held
        )
    )


def judge_running_pods(pods: Sequence[str]) -> Iterator[Finding]:
    """That they will be deleted."""
    if pods:
        yield Finding(
            f"pods run on shared GPUs from an earlier installation of KAI, and no reservation pod holds these GPUs: "
            f"{first_of(pods)}. KAI deletes these pods when it starts.",
            "What a Deployment or a Job made is made again. Let the others end first.",
            fatal=False,
        )
