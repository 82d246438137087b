"""How many pods with a fraction KAI puts on one GPU, for what guides and stack files promise."""

from gpu_sharing.arithmetic import shared_mib
from gpu_sharing.model import Node, Pod, Workload
from gpu_sharing.placement import place
from gpu_sharing.request import FractionShare, MemoryShare, PodRequest

_MANY = 200


def fitting(label_mib: int, request: str) -> int:
    """How many equal pods run on one GPU.

    Args:
        label_mib: its node's `nvidia.com/gpu.memory`.
        request: `gpu-memory` in MiB (`30720`), or `gpu-fraction` (`0.25`).
    """
    share = FractionShare(float(request)) if "." in request else MemoryShare(int(request))
    pods = tuple(Pod(f"pod-{number}", PodRequest(share)) for number in range(_MANY))
    return len(place([Node("node", shared_mib(label_mib), 1, 1)], [Workload(pods)]).placed)
