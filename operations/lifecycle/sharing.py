"""The end of `make up` where KAI is real on the simulator: a workload that shares a GPU, as KAI schedules it."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from lightkube import Client, codecs
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Pod
from rich import box
from rich.table import Table

from cluster.access.answers.pods import Pod as ReadPod
from cluster.pending import scheduler_says
from gpu_sharing.request import GPU_MEMORY
from operations.errors import OperationError
from operations.plain_text import PlainText

if TYPE_CHECKING:
    from lightkube.resources.apps_v1 import Deployment

WORKLOAD = Path("examples/sharing.yaml")
NAMESPACE = "default"
_FIELD_MANAGER = "kai-anywhere-make-up"
_WITHIN_SECONDS, _POLL_SECONDS = 60.0, 0.5


def share(api: Client, folder: Path, *, width: int) -> str:
    """Apply the workload, and tell once KAI has decided about each of its pods.

    Args:
        api: the simulator's administrator.
        folder: where `WORKLOAD` is.
        width: columns of the text.

    Raises:
        OperationError: the API server refuses the workload.
    """
    manifest = yaml.safe_load((folder / WORKLOAD).read_text(encoding="utf-8"))
    manifest["metadata"]["namespace"] = NAMESPACE
    workload = cast("Deployment", codecs.from_dict(manifest))
    try:
        api.apply(workload, field_manager=_FIELD_MANAGER, force=True)
    except ApiError as error:
        raise OperationError(f"The API server refuses {WORKLOAD}: {error.status.message}") from error
    selector = manifest["spec"]["selector"]["matchLabels"]
    pods = decided(
        lambda: [pod.to_dict() for pod in api.list(Pod, namespace=NAMESPACE, labels=selector)],
        manifest["spec"]["replicas"],
    )
    return table(pods, width=width)


def decided(pods: Callable[[], Sequence[Mapping[str, Any]]], count: int) -> list[Mapping[str, Any]]:
    """The workload's pods, once each runs or has KAI's word why it does not; as they are after a minute, otherwise."""
    deadline = time.monotonic() + _WITHIN_SECONDS
    while True:
        current = sorted(pods(), key=lambda pod: (_phase(pod) != "Running", pod["metadata"]["name"]))
        if len(current) == count and all(_phase(pod) == "Running" or reason(pod) for pod in current):
            return current
        if time.monotonic() > deadline:
            return current
        time.sleep(_POLL_SECONDS)


def reason(pod: Mapping[str, Any]) -> str:
    """Why a pod is not scheduled, in the scheduler's words; empty where nothing is said."""
    return scheduler_says(ReadPod.model_validate(pod))


def table(pods: Sequence[Mapping[str, Any]], *, width: int) -> str:
    """The pods with their shares, and how many run, in so many columns of text."""
    running = sum(_phase(pod) == "Running" for pod in pods)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("Pod", "MiB", "Phase", "Node", "Why not"):
        shown.add_column(column, overflow="fold")
    for pod in pods:
        metadata = pod["metadata"]
        memory = (metadata.get("annotations") or {}).get(GPU_MEMORY, "-")
        node = pod["spec"].get("nodeName") or "-"
        shown.add_row(metadata["name"], memory, _phase(pod), node, reason(pod))
    console = PlainText(width)
    console.print(f"Scheduled by KAI ({WORKLOAD}): {running} Running, {len(pods) - running} Pending.\n")
    console.print(shown)
    return console.text.rstrip()


def _phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")
