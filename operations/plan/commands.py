"""`plan`: how many pods fit, and what stays Pending and why. Read-only, and without a cluster but for --live."""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from cluster.snapshot import read_snapshot
from config.kai import DEFAULT_QUEUE
from gpu_sharing.arithmetic import LEAST_BYTES
from gpu_sharing.model import Pod, Strategy, Workload
from gpu_sharing.request import FractionShare, GpuShare, MemoryShare, PodRequest
from operations.errors import OperationError
from operations.options import stack_name
from operations.plan import report
from operations.plan.live import scene_of_cluster
from operations.plan.machines import Scene, machines_by_numbers, scene_of
from operations.plan.workloads import accepted, distinct, read_workloads
from operations.reading import open_place
from operations.stack_file import read_settings
from operations.target import ROOT

_NODES = "Nodes"
_PODS = "Pods"
_MOST_PODS, _MOST_NODES, _MOST_GPUS = 1000, 100, 16


@dataclass(frozen=True)
class _PodOptions:
    """Equal pods, as flags say them."""

    request_mib: int | None
    fraction: float | None
    pods: int
    devices: int
    queue: str | None

    def workload(self, scene: Scene) -> Workload:
        share = (
            MemoryShare(self.request_mib, self.devices)
            if self.request_mib is not None
            else FractionShare(self.fraction or 0, self.devices)
        )
        request = PodRequest(share)
        taken = {pod.name for workload in scene.workloads for pod in workload.pods}
        names = [name for number in range(1, self.pods + len(taken) + 1) if (name := f"pod-{number}") not in taken]
        queue = self.queue or DEFAULT_QUEUE if scene.queues else None
        nodes, _ = accepted({}, (), scene.machines)
        return Workload(tuple(Pod(name, request, nodes) for name in names[: self.pods]), queue)


def _print_schema(value: bool) -> None:
    """Print the schema and end, whatever else is asked."""
    if value:
        typer.echo(json.dumps(report.PlanReport.model_json_schema(), indent=2))
        raise typer.Exit


def plan(  # noqa: PLR0913 - every option of the command
    *,
    gpu_memory_mib: Annotated[
        int | None,
        typer.Option(
            help="Memory of a GPU on equal nodes, as their label nvidia.com/gpu.memory has it.",
            min=1,
            max=LEAST_BYTES - 1,
            rich_help_panel=_NODES,
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of each node; by default 1.", min=1, max=_MOST_GPUS, rich_help_panel=_NODES)
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="How many equal nodes; by default 1.", min=1, max=_MOST_NODES, rich_help_panel=_NODES),
    ] = None,
    machine_memory_mib: Annotated[
        int | None,
        typer.Option(help="All memory of a node whose GPU shares it with the system.", min=1, rich_help_panel=_NODES),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            callback=stack_name,
            help="The nodes and queues that a stack's settings say.",
            rich_help_panel=_NODES,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="The nodes, pods and queues that a cluster has.", rich_help_panel=_NODES)
    ] = False,
    context: Annotated[
        str | None, typer.Option(help="With --live: the kubeconfig's context.", rich_help_panel=_NODES)
    ] = None,
    request_mib: Annotated[
        int | None, typer.Option(help="What each of equal pods asks for, as gpu-memory.", min=1, rich_help_panel=_PODS)
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(help="The same as gpu-fraction, above 0 and below 1.", rich_help_panel=_PODS)
    ] = None,
    pods: Annotated[
        int | None,
        typer.Option(help="How many equal pods; by default 1.", min=1, max=_MOST_PODS, rich_help_panel=_PODS),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(help="GPUs of each pod (gpu-fraction-num-devices); by default 1.", min=1, rich_help_panel=_PODS),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help=f"Queue of equal pods; by default {DEFAULT_QUEUE}.", rich_help_panel=_PODS)
    ] = None,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(help="Kubernetes manifests of the pods; - is standard input.", rich_help_panel=_PODS),
    ] = None,
    placement: Annotated[
        Strategy | None,
        typer.Option(help="How KAI fills GPUs and nodes; by default as the stack says, else binpack."),
    ] = None,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit status 3 where a pod stays Pending.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    schema: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--json-schema", callback=_print_schema, is_eager=True, help="Print the schema of --json.")
    ] = False,
) -> None:
    """Say how many pods with fractions fit, by KAI's own arithmetic, what stays Pending, and what would fit."""
    _check_options(
        {
            "--gpu-memory-mib": gpu_memory_mib is not None,
            "--gpus": gpus is not None,
            "--nodes": nodes is not None,
            "--machine-memory-mib": machine_memory_mib is not None,
            "--stack": stack is not None,
            "--live": live,
            "--context": context is not None,
            "--request-mib": request_mib is not None,
            "--fraction": fraction is not None,
            "--pods": pods is not None,
            "--devices": devices is not None,
            "--queue": queue is not None,
            "--file": file is not None,
            "--placement": placement is not None,
        }
    )
    if fraction is not None and not 0 < fraction < 1:
        raise typer.BadParameter(f"{fraction:g}: give a number above 0 and below 1.", param_hint="--fraction")
    if live:
        with open_place(stack, context) as place:
            scene = scene_of_cluster(read_snapshot(place.cluster), place.settings, placement)
    elif stack is not None:
        scene = scene_of(read_settings(ROOT / f"Pulumi.{stack}.yaml"))
    else:
        machines = machines_by_numbers(gpu_memory_mib or 0, gpus or 1, nodes or 1, machine_memory_mib)
        scene = Scene(machines, strategy=placement or Strategy.BINPACK)
    workloads, scene = _workloads(scene, file, _PodOptions(request_mib, fraction, pods or 1, devices or 1, queue))
    if not scene.fractions and any(
        isinstance(pod.request.gpu, GpuShare) for workload in workloads for pod in workload.pods
    ):
        why = "KAI's Config switches fractions off" if live else "kai.gpu_sharing_mode is 'disabled'"
        raise OperationError(f"{why}, so KAI refuses pods with fractions. Choose another mode first.")
    answer = report.plan(scene, workloads)
    typer.echo(answer.model_dump_json(indent=2) if as_json else report.text(answer, _columns()))
    raise typer.Exit(report.status(answer, require_all=require_all))


def _workloads(scene: Scene, file: BinaryIO | None, options: _PodOptions) -> tuple[tuple[Workload, ...], Scene]:
    if not scene.machines:
        remarks = "".join(f"\n{remark}" for remark in scene.remarks)
        raise OperationError(
            f"There is no node to plan for: no node has GPUs whose memory is known. Give --gpu-memory-mib.{remarks}"
        )
    if file is None and options.request_mib is None and options.fraction is None:
        return (), scene
    if file is None:
        return (options.workload(scene),), scene
    # Where it was closed before the command began, its name is a number.
    name = file.name if isinstance(file.name, str) else "<stdin>"
    try:
        text = file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationError(f"{name} can't be read: {error}") from error
    read = read_workloads(text, Path(name).name, scene.machines, scene.queues)
    there = (pod.name for workload in scene.workloads for pod in workload.pods)
    return distinct(read.workloads, there), scene.with_remarks(read.remarks)


def _columns() -> int | None:
    """Of the terminal that is written to; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _check_options(given: Mapping[str, bool]) -> None:
    """Refuse options that do not go together.

    Raises:
        typer.BadParameter: the text says what is allowed.
    """

    def of(*names: str) -> list[str]:
        return [name for name in names if given[name]]

    sources = of("--gpu-memory-mib", "--live") or of("--stack")
    if len(sources) != 1 or (given["--gpu-memory-mib"] and given["--stack"]):
        raise typer.BadParameter("Nodes come from one of --gpu-memory-mib, --stack and --live: give one of them.")
    needs = {
        "--gpu-memory-mib": ("--gpus", "--nodes", "--machine-memory-mib"),
        "--live": ("--context",),
    }
    for source, names in needs.items():
        if (extra := of(*names)) and not given[source]:
            raise typer.BadParameter(f"{extra[0]} goes with {source} only: remove it, or give {source}.")
    pod_sources = of("--request-mib", "--fraction", "--file")
    if len(pod_sources) > 1 or (not pod_sources and not given["--live"]):
        raise typer.BadParameter(
            "Pods come from one of --request-mib, --fraction and --file: give one of them."
            + (" With --live, none of them plans what waits in the cluster." if len(pod_sources) <= 1 else "")
        )
    if (extra := of("--pods", "--devices", "--queue")) and not of("--request-mib", "--fraction"):
        raise typer.BadParameter(f"{extra[0]} goes with --request-mib or --fraction: a file says it itself.")
    if given["--queue"] and given["--gpu-memory-mib"]:
        raise typer.BadParameter("--queue goes with --stack or --live: nodes by numbers have no queues.")
    if given["--placement"] and given["--stack"] and not given["--live"]:
        raise typer.BadParameter("--placement does not go with --stack, whose kai.scheduler.placement says it.")
