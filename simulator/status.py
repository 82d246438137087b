"""What runs in a folder, for a person to read and for a program to ask."""

from dataclasses import dataclass
from pathlib import Path

import httpx2
from lightkube.resources.core_v1 import Node

from gpu_sharing.quantities import quantity
from simulator import api, records
from simulator.control_plane import PROCESSES, api_version
from simulator.layout import Layout
from simulator.nodes import KIND_ANNOTATION
from simulator.pki import Pki
from simulator.ports import LOOPBACK
from simulator.processes import alive
from simulator.programs import PODS
from toolchain import IMAGES

_REAL = "Real: etcd, the API server with its admission, RBAC, the controllers, the scheduler; so Helm and Pulumi too"
_RECORDS = "Simulated: nodes and pods (records that KWOK keeps; no container runs, no GPU is there)"

NOT_CHECKED = "Not checked by KAI: which pod gets which share of a GPU, its webhooks' verdicts, its RBAC."
"""Where KAI is emulated."""


def simulated(kai_programs: str | None) -> str:
    """What is real in a simulator and what is not, in words.

    Args:
        kai_programs: the folder of KAI's programs, or `images`, where they run; None where KAI is emulated.
    """
    if kai_programs is None:
        return (
            f"{_RECORDS} and what the pods of the GPU Operator and of KAI would do.\n{_REAL}.\n"
            f"{NOT_CHECKED} Its programs check them: KAI_PROGRAMS=<folder> and kai.chart with KAI's own chart "
            "(docs/simulator.md)."
        )
    return (
        f"{_RECORDS}; what the GPU Operator's pods would do, KAI's hook Jobs, and in its reservation pods the GPU that "
        f"NVML would name.\n{_REAL}; and KAI: its Deployments run as processes, with their own ServiceAccounts and "
        f"webhooks, by the programs {'of their images' if kai_programs == IMAGES else f'in {kai_programs}'}."
    )


@dataclass(frozen=True)
class ProcessStatus:
    """One process: `pid` and `port` are None where there is none."""

    name: str
    alive: bool
    pid: int | None
    port: int | None


@dataclass(frozen=True)
class NodeStatus:
    """One node: `kind` is None for a node that the simulator did not make, `gpus` is the allocatable nvidia.com/gpu."""

    name: str
    kind: str | None
    ready: bool
    gpus: int


@dataclass(frozen=True)
class Status:
    """A folder's simulator; `version` is None and `nodes` is empty where no API server answers.

    `exists` where it was started before; `kai_programs` is where the programs of KAI that run come from.
    """

    folder: Path
    kubeconfig: Path
    processes: tuple[ProcessStatus, ...]
    version: str | None
    nodes: tuple[NodeStatus, ...]
    exists: bool = False
    kai_programs: str | None = None

    @property
    def running(self) -> bool:
        """Whether everything runs."""
        return self.version is not None and all(process.alive for process in self.processes)


def status(folder: Path) -> Status:
    """Look, change nothing; a folder that does not exist has a simulator of which nothing runs."""
    layout = Layout.of(folder)
    state = records.read(layout.records)
    ports = {"kube-apiserver": state.ports.api_server} if state else {}
    processes = []
    for name in (*PROCESSES, *([PODS] if state and state.programs else [])):
        recorded = state.processes.get(name) if state else None
        lives = recorded is not None and alive(recorded.running)
        processes.append(
            ProcessStatus(name, lives, recorded.pid if recorded and lives else None, ports.get(name) if lives else None)
        )
    # Without its store the API server lets every question run into a time-out.
    can_answer = state is not None and all(
        process.alive for process in processes if process.name in {"etcd", "kube-apiserver"}
    )
    version = api_version(f"https://{LOOPBACK}:{ports['kube-apiserver']}", Pki(layout.pki)) if can_answer else None
    nodes: tuple[NodeStatus, ...] = ()
    if version:
        try:
            with api.client(layout.kubeconfig) as client:
                nodes = tuple(map(_node_status, api.list_nodes(client)))
        except httpx2.HTTPError:
            version = None
    return Status(
        layout.folder,
        layout.kubeconfig,
        tuple(processes),
        version,
        nodes,
        exists=state is not None,
        kai_programs=state.programs if state else None,
    )


def _node_status(node: Node) -> NodeStatus:
    metadata, allocatable = node.metadata, (node.status and node.status.allocatable) or {}
    return NodeStatus(
        name=(metadata and metadata.name) or "",
        kind=((metadata and metadata.annotations) or {}).get(KIND_ANNOTATION),
        ready=api.is_ready(node),
        gpus=int(quantity(allocatable.get("nvidia.com/gpu", 0))),
    )
