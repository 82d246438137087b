"""The sums of KAI's scheduler: what it shares of a GPU, what a request takes there, and what it charges a queue for.

KAI v0.17.0 pkg/scheduler/api/node_info and pkg/scheduler/api/resource_info. Memory is in MiB.
"""

import math
import re

STEP_MIB = 100
"""A GPU's memory is rounded down to a multiple of it (node_info.go, getNodeGpuMemory)."""
UNLABELLED_MIB = 100
"""What KAI computes fractions of where a node has no memory label (node_info.go, DefaultGpuMemory)."""
LEAST_BYTES = 1 << 20
"""A label of this and more is taken for bytes (node_info.go, checkGpuMemoryIsInMib)."""
_INTEGER = re.compile(r"\+?\d{1,18}")


def shared_mib(label_mib: int) -> int:
    """What KAI shares of a GPU of `label_mib`."""
    return label_mib - label_mib % STEP_MIB


def read_label(label: str | None) -> int | None:
    """The MiB that a label `nvidia.com/gpu.memory` says; None where KAI can't read it, or there is none.

    Without it no pod with `gpu-memory` is placed on the node; `gpu-fraction` is taken of `UNLABELLED_MIB`.
    """
    if label is None or not _INTEGER.fullmatch(label):
        return None
    return int(label) if int(label) < LEAST_BYTES else int(label) >> 20


def part_mib(fraction: float, shared: int) -> int:
    """What a `gpu-fraction` takes of a GPU (node_info.go, GetResourceGpuMemory): cut to whole MiB."""
    return int(fraction * shared)


def portion(mib: int, shared: int) -> float:
    """The part of a GPU that `mib` are, rounded up to hundredths (gpu_sharing_node_info.go).

    It is what the queue is charged and what the pod's BindRequest says; whether a pod fits is decided in MiB.
    """
    return math.ceil(mib / shared * 100) / 100 if shared else math.inf


def is_possible(part: float) -> bool:
    """Whether KAI gives this part of a GPU at all (node_info.go, isValidGpuPortion).

    More than a GPU is refused, but for whole multiples: KAI then places the pod on one GPU that has not as much.
    """
    return part <= 1 or (math.isfinite(part) and part == int(part))


def charged_gpus(part: float, devices: int) -> float:
    """What a pod adds to the GPUs that its queue uses (gpu_resource_requirment.go, getExtendedResourceGpus).

    What part a share is of a GPU of which nothing is shared, nobody can say: it is not counted.
    """
    return math.floor(part * 100 + 0.5) * devices / 100 if math.isfinite(part) else 0.0
