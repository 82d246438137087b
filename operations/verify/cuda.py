"""CUDA's vector addition on one node, with a small share of its GPU."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.access.answers.nodes import Node
from cluster.access.answers.pods import Pod
from gpu_sharing.request import GPU_MEMORY
from manifests.objects import Manifest
from operations import scratch
from operations.scratch import STUCK, Scratch
from operations.verify.sharing import WITHIN_SECONDS, Trial, manifest, why_not
from operations.verify.steps import Outcome, Step

NAME = "cuda"
IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04"
"""NVIDIA's sample, which its own guides run (Confidential Containers, Run a Sample Workload)."""
_IMAGE_ARCHITECTURE = "amd64"
SHARE_MIB = 400
"""The sample takes a few MiB, and CUDA itself some hundred."""
PASSED = "Test PASSED"
_LINES = 20
_ENDED = {"Succeeded", "Failed"}
_KERNEL = re.compile(r"(\d+\.\d+)\.\d+\S*-tegra")


@dataclass(frozen=True)
class _Board:
    name: str
    cuda: str
    tag: str


_BOARDS = {
    "5.15": _Board("JetPack 6", "its own CUDA 12", "jetpack-6"),
    "6.8": _Board("JetPack 7", "its own CUDA 13", "jetpack-7"),
}
"""By the kernel of each L4T: 5.15 in R36, 6.8 in R38 and R39."""
_OTHER = _Board("no Jetson that is known", "a CUDA that its driver supports", "arm64")


def image_for(node: Node, named: str | None) -> str | None:
    """The image to run on a node; None where none is known that runs there.

    Args:
        node: the node.
        named: an image that the user named.
    """
    return named or (IMAGE if node.architecture == _IMAGE_ARCHITECTURE else None)


def _no_image(node: Node) -> str:
    """Why there is none, and what to type: none that NVIDIA publishes is known to run on a board's own CUDA.

    A node tells its board's software by its kernel's name: JetPack 6 has CUDA 12, JetPack 7 has CUDA 13.
    """
    match = _KERNEL.match(node.kernel)
    board = _BOARDS.get(match[1], _OTHER) if match else _OTHER
    return (
        f"no image is known that runs CUDA's vector addition on {node.architecture or 'this machine'} with kernel "
        f"{node.kernel or 'unknown'} ({board.name}). Build the sample vectorAdd with nvcc of {board.cuda}, push it, "
        f"and name it: kai-anywhere verify --cuda-image REGISTRY/vectoradd:{board.tag}"
    )


@dataclass(frozen=True)
class VectorAddition:
    """Runs it.

    Attributes:
        scratch: the namespace, made and empty.
        queue: the pod's.
        report: is told what happens, a line each.
    """

    scratch: Scratch
    queue: str
    report: Callable[[str], None]

    def verify(self, node: Node, image: str | None) -> Step:
        """Run it on a node and remove the pod.

        Raises:
            OperationError: the pod does not go.
            ClusterError: the API server can't be asked.
        """
        if image is None:
            return Step(name=NAME, place=node.name, outcome=Outcome.SKIPPED, says=_no_image(node))
        self.report(f"{node.name}: CUDA's vector addition with {SHARE_MIB} MiB")
        pod = self._pod(node, image)
        if refused := self.scratch.cluster.create(pod):
            says = "the cluster refuses the pod."
            return Step(name=NAME, place=node.name, outcome=Outcome.FAILED, says=says, evidence=(refused.message,))
        name = pod["metadata"]["name"]
        ended = self._ended(name)
        log = self.scratch.cluster.log(self.scratch.name, name, lines=_LINES) if ended and ended.node else ""
        self.scratch.cluster.delete(pod)
        self.scratch.until_gone("pod", lambda: self.scratch.cluster.pod(self.scratch.name, name) is None)
        lines = tuple(line for line in log.splitlines() if line.strip())
        if ended is not None and ended.phase == "Succeeded" and PASSED in log:
            return Step(
                name=NAME, place=node.name, outcome=Outcome.HELD, says="the vector addition passed.", evidence=lines
            )
        why = (why_not(ended) or ended.message or ended.phase) if ended else "its pod is gone"
        says = f"the vector addition did not pass: {why}."
        return Step(name=NAME, place=node.name, outcome=Outcome.FAILED, says=says, evidence=lines)

    def _pod(self, node: Node, image: str) -> Manifest:
        trial = Trial(node.name, node.labels.get("kubernetes.io/hostname", node.name), SHARE_MIB, count=1, running=1)
        pod = manifest(trial, 0, self.scratch.name, image, self.queue)
        pod["metadata"] |= {"name": "vector-addition", "annotations": {GPU_MEMORY: str(SHARE_MIB)}}
        pod["spec"]["restartPolicy"] = "Never"
        return pod

    def _ended(self, name: str) -> Pod | None:
        """The pod once it ended, or will not start; as it is when the time is over."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            pod = self.scratch.cluster.pod(self.scratch.name, name)
            waiting = {state.reason for status in pod.statuses for state in status.state.values()} if pod else set()
            if pod is None or pod.phase in _ENDED or waiting & STUCK or time.monotonic() > deadline:
                return pod
            time.sleep(scratch.POLL_SECONDS)
