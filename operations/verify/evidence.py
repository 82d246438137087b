"""A report that the owner of a board can send to others: versions and outcomes, without names and secrets."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cluster.answers import Node
from operations.bundle.clean import Cleaner
from operations.errors import OperationError
from operations.verify.steps import Report

VERSION = 1
"""Of the file's shape."""
_LABELS = re.compile(r"^(nvidia\.com/(gpu|cuda|mig|mps|vgpu)[\w./-]*|kai-anywhere\.io/platform)$")


def evidence(report: Report, nodes: Iterable[Node], kubernetes: str) -> dict[str, Any]:
    """The content.

    Nodes are called `node-1` and so on, in every text too.

    Args:
        report: what was verified.
        nodes: of the cluster; those without a GPU are left out.
        kubernetes: the API server's version.
    """
    boards = [node for node in nodes if node.gpus or any(_LABELS.match(label) for label in node.labels)]
    names = {node.name: f"node-{number}" for number, node in enumerate(sorted(boards, key=lambda each: each.name), 1)}
    cleaner = Cleaner()
    steps = json.loads(_renamed(cleaner.text(report.model_dump_json()), names))
    return {
        "version": VERSION,
        "kubernetes": kubernetes,
        "nodes": {names[node.name]: _board(node) for node in sorted(boards, key=lambda each: each.name)},
        "steps": steps["steps"],
    }


def write_evidence(file: Path, report: Report, nodes: Iterable[Node], kubernetes: str) -> None:
    """Write it into a new file.

    Raises:
        OperationError: the file exists, or can't be written.
    """
    content = json.dumps(evidence(report, nodes, kubernetes), indent=2) + "\n"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise OperationError(f"{file} exists. Choose another name with --evidence.") from error
    except OSError as error:
        raise OperationError(f"{file} can't be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(content)


def _board(node: Node) -> dict[str, Any]:
    return {
        "architecture": node.architecture,
        "kernel": node.kernel,
        "os_image": node.os_image,
        "kubelet": node.kubelet,
        "container_runtime": node.container_runtime,
        "memory_mib": node.memory_mib,
        "advertised_gpus": node.gpus,
        "labels": {label: value for label, value in sorted(node.labels.items()) if _LABELS.match(label)},
    }


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", names[name], text)
    return text
