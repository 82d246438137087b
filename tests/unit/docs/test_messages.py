"""The messages that the guides explain are those that the program writes, or a program that is named here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from testbed.stacks import ROOT

GUIDES = (
    "jetson",
    "distributions",
    "mixed-clusters",
    "air-gapped",
    "upgrade",
    "gvirtus",
    "admission",
    "hosts",
    "messages",
)
PACKAGES = ("agents", "cluster", "components", "config", "manifests", "operations", "toolchain")
ELSEWHERE = {
    "ERROR_LIBRARY_NOT_FOUND": "NVML, in KAI's reservation pod",
    "hostPath type check failed": "the kubelet",
    "found N devices, 1 was expected": "KAI's reservation pod",
    "unsupported device id": "NVIDIA's container runtime",
    "unresolvable CDI devices": "containerd",
    'no runtime for "nvidia" is configured': "containerd",
    "NvRmMemInitNvmap failed: Permission denied": "NVIDIA's driver library",
    "CUDA-capable device(s) is/are busy or unavailable": "the CUDA runtime of a pod with a remote GPU",
    "error getting device memory: Not Supported": "NVIDIA's device plugin",
    "ImagePullBackOff": "the kubelet",
    "NonPreemptibleOverQuota": "KAI's scheduler",
    "no such host": "Go's resolver, in pulumi",
    "certificate has expired or is not yet valid": "Go's TLS, in k3s",
    "certificate signed by unknown authority": "Go's TLS, in pulumi's Kubernetes provider, helm and crane",
    "error getting credentials": "Docker's library of credential helpers, in crane",
    'failed calling webhook "reservation.kai-anywhere.io"': "the API server",
    'failed calling webhook "gvirtus.kai-anywhere.io"': "the API server",
    "not configured on this cluster": "the API server, of a Service",
    "after 60 failed attempts": "the command provider",
    "proxy: after N failed attempts: ssh: handshake failed: EOF": "the command provider, with a number filled in",
    "this private key is passphrase protected": "Go's SSH client, in the command provider",
    "ssh: no key found": "Go's SSH client, in the command provider",
    "error receiving version packet from server": "Go's SFTP client, in the command provider",
    "unable to authenticate": "Go's SSH client, in the command provider",
    "subsystem request failed": "Go's SSH client, in the command provider",
    "SSH_FX_FAILURE": "Go's SFTP client, in the command provider",
    "failed to create parent directories": "the command provider",
    "administratively prohibited": "Go's SSH client, in the command provider",
    "knownhosts": "Go's SSH client, in the command provider",
    "Host key verification failed": "OpenSSH",
    "host key mismatch": "Go's SSH client, in the command provider",
    "kai-host.pyz: FAILED": "sha256sum",
    "No matching distribution found": "pip",
    "Pending": "Kubernetes, of a pod",
    "Your local changes to the following files would be overwritten": "git",
    "1 setting is wrong. Nothing was changed.": "ours, with the number filled in",
    "is not ready for this stack": "ours, between two names",
    "Waited ... s for the pods of Helm release": "ours, with the time filled in",
    "Waited 900 s for GPUs to be advertised": "ours, with the time filled in",
    "Waited ... s for GPUs to be advertised": "ours, with the time filled in",
    "Waited ... s for the admission webhook of Queue": "ours, with time and kind filled in",
    "timed out waiting for the condition": "Helm, of a hook",
    "Release kai-scheduler deleting": "pulumi",
    "uninstallation completed with 1 error(s)": "Helm",
    "uninstalling": "Helm",
    "already exists": "the API server, of an object of a hook",
    "exists and cannot be imported into the current release": "Helm",
    "insufficient quota to match these scopes": "the API server, of a pod",
    "ValidatingAdmissionPolicy 'kai-anywhere-pod-guard' ... denied request": "the API server, of our policy",
    "the stack is currently locked": "pulumi",
    "grpc._channel._InactiveRpcError": "grpc, in Pulumi's Python program",
    "the volume name gvirtus-config is taken": "ours, with the name filled in",
    "something else is mounted at /run/gvirtus/properties.json": "ours, with the path filled in",
}
"""Who writes the text, where no single string of this program holds it."""
NAMES = frozenset({"fraction", "/usr/local/nvidia/toolkit", "gpu-memory", "get.pulumi.com"})
"""What stands in backticks there and is no message: a pod, a folder, an annotation, a host."""


def _text(node: ast.AST) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"\{\w+\}", "...", text)
        case ast.JoinedStr(values=parts):
            return "".join("..." if isinstance(part, ast.FormattedValue) else _text(part) or "" for part in parts)
        case _:
            return None


@cache
def _strings() -> list[str]:
    """Every string of the program, with three dots where a value is filled in, without backticks, and its scripts."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    texts = [text for tree in trees for node in ast.walk(tree) if (text := _text(node)) is not None]
    scripts = [file.read_text(encoding="utf-8") for package in PACKAGES for file in (ROOT / package).rglob("*.sh")]
    return [text.replace("`", "") for text in (*texts, *scripts)]


def _is_written(message: str) -> bool:
    parts = [part for part in message.split("...") if part.strip()]
    return any(re.search(".*".join(re.escape(part) for part in parts), text, re.DOTALL) for text in _strings())


def _quoted(guide: str) -> list[str]:
    """What stands in backticks in the first column of a guide's table of errors."""
    text = (
        Path(ROOT / "docs" / f"{guide}.md")
        .read_text(encoding="utf-8")
        .partition("## When it fails")[2]
        .partition("\n## ")[0]
    )
    cells = re.findall(r"(?m)^\| (.*?) \| .* \|$", text)
    return [quoted for cell in cells for quoted in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("guide", GUIDES)
def test_every_message_is_one_that_is_written(guide: str) -> None:
    quoted = _quoted(guide)
    assert len(quoted) > 2, "the table was not found"
    assert [
        sentence for sentence in quoted if sentence not in ELSEWHERE.keys() | NAMES and not _is_written(sentence)
    ] == []


def test_no_exception_is_left_over() -> None:
    assert {sentence for guide in GUIDES for sentence in _quoted(guide)} >= ELSEWHERE.keys() | NAMES


def test_a_message_that_nobody_writes_is_found() -> None:
    assert _is_written("the stack names the node '...', which the cluster does not have")
    assert not _is_written("the stack names the host '...', which the cluster does not have")
    assert not _is_written("which the cluster does not have ... the stack names the node")
