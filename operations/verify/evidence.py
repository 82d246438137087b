"""A report that the owner of a board can send to others: versions and outcomes, without names and secrets."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cluster.access.answers.nodes import Node
from config.platform import TegraPlatform, ToolkitOwner, X86Platform
from config.stack import StackSettings
from operations.bundle.clean import Cleaner
from operations.doctor.facts import GPU_OPERATOR, KAI_OPERATOR, Facts
from operations.new_files import new_file
from operations.verify.steps import Report, Step

OPTION = "--evidence"
"""That names the file."""
_LABELS = re.compile(r"^(nvidia\.com/(gpu|cuda|mig|mps|vgpu)[\w./-]*|kai-anywhere\.io/platform)$")
_KWOK = "kwok.x-k8s.io/node"
"""Annotation of nodes that are records: nothing runs there."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EvidenceNode(_Model):
    """A node with a GPU, as the API server shows it."""

    architecture: str
    kernel: str
    os_image: str
    kubelet: str
    container_runtime: str
    memory_mib: int
    advertised_gpus: int
    labels: dict[str, str]


class Evidence(_Model):
    """One run of verify: the content of the file, and of those in docs/evidence."""

    version: Literal[1] = 1
    taken: date
    simulated: bool = Field(description="Whether its nodes are records of a simulator, and no boards.")
    board: str = Field(description="What its owner calls the board; empty where nobody said.")
    jetpack: str = Field(description="The same of JetPack or L4T.")
    distribution: str
    kubernetes: str
    container_toolkit: str = Field(description="Whose it is: the host's, or the GPU Operator's.")
    kai: str = Field(description="The tag of its operator's image; empty where it was not seen.")
    gpu_operator: str = Field(description="The tag of its image; empty where it was not seen.")
    nodes: dict[str, EvidenceNode]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Installation:
    """What evidence says of the installation.

    Attributes:
        settings: of the stack.
        facts: what doctor has read.
        kubernetes: the API server's version.
        simulated: whether it is a stack's simulator; other simulators are known by their nodes.
        board: what the owner calls the board.
        jetpack: the same of JetPack or L4T.
    """

    settings: StackSettings
    facts: Facts
    kubernetes: str
    simulated: bool
    board: str = ""
    jetpack: str = ""


def evidence(report: Report, nodes: Iterable[Node], installation: Installation, taken: date) -> Evidence:
    """The content.

    Nodes are called `node-1` and so on, in every text too.

    Args:
        report: what was verified.
        nodes: of the cluster; those without a GPU are left out.
        installation: what it was verified on.
        taken: the day.
    """
    boards = [node for node in nodes if node.gpus or any(_LABELS.match(label) for label in node.labels)]
    boards = sorted(boards, key=lambda node: node.name)
    names = {node.name: f"node-{number}" for number, node in enumerate(boards, 1)}
    cleaner = Cleaner()
    steps = json.loads(_renamed(cleaner.text(report.model_dump_json()), names))
    gpu_operator = _tag(installation.facts, GPU_OPERATOR)
    return Evidence(
        taken=taken,
        simulated=installation.simulated or any(_KWOK in node.annotations for node in boards),
        board=installation.board,
        jetpack=installation.jetpack,
        distribution=installation.settings.cluster.distribution.value,
        kubernetes=installation.kubernetes,
        container_toolkit=_toolkit(installation.settings, gpu_operator),
        kai=_tag(installation.facts, KAI_OPERATOR),
        gpu_operator=gpu_operator,
        nodes={names[node.name]: _board(node) for node in boards},
        steps=tuple(map(Step.model_validate, steps["steps"])),
    )


def _toolkit(settings: StackSettings, gpu_operator: str) -> str:
    """Whose toolkit it is: without a GPU Operator, whoever installs it, the host has it."""
    match settings.platform:
        case TegraPlatform() as tegra:
            return tegra.container_toolkit.value
        case X86Platform():
            return (ToolkitOwner.OPERATOR if gpu_operator or settings.gpu_operator.install else ToolkitOwner.HOST).value


def _tag(facts: Facts, name: str) -> str:
    """The image's tag of a Deployment; empty where it is not there, or has none."""
    images = [
        container.image
        for deployment in facts.deployments
        if deployment.name == name
        for container in deployment.containers
    ]
    _, _, tag = images[0].partition("@")[0].rpartition("/")[2].partition(":") if images else ("", "", "")
    return tag


def write_evidence(file: Path, content: Evidence) -> None:
    """Write it into a new file.

    Raises:
        OperationError: the file exists, or can't be written.
    """
    with new_file(file, option=OPTION) as out:
        out.write((content.model_dump_json(indent=2) + "\n").encode())


def _board(node: Node) -> EvidenceNode:
    return EvidenceNode(
        architecture=node.architecture,
        kernel=node.kernel,
        os_image=node.os_image,
        kubelet=node.kubelet,
        container_runtime=node.container_runtime,
        memory_mib=node.memory_mib,
        advertised_gpus=node.gpus,
        labels={label: value for label, value in sorted(node.labels.items()) if _LABELS.match(label)},
    )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", names[name], text)
    return text
