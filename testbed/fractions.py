"""How many pods with a fraction KAI puts on one GPU: its arithmetic, for what the guides promise.

As in KAI's scheduler (pkg/scheduler/api/node_info, v0.17 and main of August 2026): the node's label is rounded down to
a multiple of 100 MiB, and a pod fits while what is left is not below what it asks.
"""

_STEP_MIB = 100


def shared_mib(label_mib: int) -> int:
    """What KAI shares of a GPU, in MiB, where its node's `nvidia.com/gpu.memory` is `label_mib`."""
    return label_mib - label_mib % _STEP_MIB


def fitting(label_mib: int, request: str) -> int:
    """How many equal pods run on one GPU.

    Args:
        label_mib: its node's `nvidia.com/gpu.memory`.
        request: `gpu-memory` in MiB (`30720`), or `gpu-fraction` (`0.25`).
    """
    shared = shared_mib(label_mib)
    asked = int(float(request) * shared) if "." in request else int(request)
    return shared // asked
