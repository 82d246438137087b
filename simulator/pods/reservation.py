"""What is emulated for KAI's reservation pods: NVML's answer, which GPU the device plugin gave to the pod."""

import uuid
from collections.abc import Iterator, Mapping, Sequence

from simulator.nodes import GPUS_ANNOTATION
from simulator.operands.world import Object, annotations, at, terminating
from toolchain import name_of

IMAGE = "resourcereservation"
ANNOTATION = "run.ai/reserve_for_gpu_index"
"""Where the binder waits for the GPU (pkg/binder/binding/resourcereservation, v0.17.0)."""


def answers(pods: Sequence[Object], nodes: Mapping[str, Object]) -> Iterator[tuple[Object, str]]:
    """The reservation pods that run and say no GPU yet, each with one that no other pod of its node says."""
    reserving = [
        pod for pod in pods if any(name_of(container["image"]) == IMAGE for container in pod["spec"]["containers"])
    ]
    gpus = {(at(pod, "spec", "nodeName"), annotations(pod).get(ANNOTATION)) for pod in reserving}
    for pod in reserving:
        node = nodes.get(at(pod, "spec", "nodeName") or "")
        waits = at(pod, "status", "phase") == "Running" and ANNOTATION not in annotations(pod)
        if node is None or not waits or terminating(pod):
            continue
        name = node["metadata"]["name"]
        for index in range(int(annotations(node).get(GPUS_ANNOTATION, "0"))):
            gpu = f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{name}')}"
            if (name, gpu) not in gpus:
                gpus.add((name, gpu))
                yield pod, gpu
                break
