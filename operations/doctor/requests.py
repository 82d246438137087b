"""What pods ask of GPUs, from what the cluster says of them."""

from cluster.access.answers.pods import Pod
from gpu_sharing.request import GPU_FRACTION, GPU_MEMORY, GpuRequest, RequestError, pod_request


def asks_for_share(pod: Pod) -> bool:
    """Whether a pod asks for a part of a GPU by KAI's own annotations."""
    return any(pod.annotations.get(annotation) is not None for annotation in (GPU_FRACTION, GPU_MEMORY))


def objection_to(pod: Pod) -> str | None:
    """What KAI's admission has against a pod's request, or None."""
    try:
        pod_request(pod.as_manifest())
    except RequestError as error:
        return str(error)
    return None


def gpu_request(pod: Pod) -> GpuRequest | None:
    """What a pod asks of GPUs; None where it asks for none, or in a way that KAI's admission refuses."""
    try:
        return pod_request(pod.as_manifest()).gpu
    except RequestError:
        return None
