"""What a doctor asks of a host: the probe's answer, and what is wrong with runtimes, files and devices. Only reads."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError
from agents.host.look import board, libraries, probe, runtime, toolkit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.host.commands import Tools
    from agents.host.root import Root

_VERSION = 2
_VALIDATIONS = "/run/nvidia/validations"
_SWAP = re.compile(r"^\S+\s+\S+\s+(\d+)\s", re.MULTILINE)
_KIB_PER_MIB = 1024
_MOST = 50
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def examine(tools: Tools, folders: tuple[str, ...] = ()) -> dict[str, Any]:
    """Examine a host; what is missing on the host is missing in the answer, never a failure.

    Args:
        tools: The host's programs.
        folders: Where the driver's libraries are looked for too.
    """
    return {
        "version": _VERSION,
        "probe": probe.probe(tools, folders),
        "containerd": runtime.examine(tools),
        "docker": _docker(tools.root),
        "operator_toolkit": tools.root.exists(f"{toolkit.OPERATOR_FOLDER}/nvidia-container-runtime"),
        "csv": _csv(tools.root),
        "injection": {
            "l4t": board.l4t_release(tools.root),
            "csv_digest": _digest(tools.root, [f"{toolkit.CSV_FOLDER}/*.csv"]),
            "cdi_digest": _digest(tools.root, libraries.CDI),
        },
        "swap_mib": _swap_mib(tools.root),
        "devices_without_link": _without_link(tools.root),
        "validations": _validations(tools.root),
        "clock": int(time.time()),
    }


def _docker(root: Root) -> dict[str, str] | None:
    """Docker's configuration, as far as it can be read: never its content."""
    if not root.exists(runtime.DOCKER_CONFIG):
        return None
    try:
        text = (root.read_bytes(runtime.DOCKER_CONFIG) or b"").decode(runtime.DOCKER_ENCODING, "replace")
    except HostError:
        return {"config": runtime.DOCKER_CONFIG, "state": "unreadable"}
    if not text.strip():
        return {"config": runtime.DOCKER_CONFIG, "state": "empty"}
    try:
        parsed = json.loads(text)
    except ValueError:
        return {"config": runtime.DOCKER_CONFIG, "state": "invalid"}
    return {"config": runtime.DOCKER_CONFIG, "state": "valid" if isinstance(parsed, dict) else "invalid"}


def _csv(root: Root) -> dict[str, list[str]]:
    """The toolkit's lists of a Jetson's files and devices, and which entries lead nowhere."""
    files = root.glob(f"{toolkit.CSV_FOLDER}/*.csv")
    entries = [line for path in files for line in (root.read_text(path) or "").splitlines()]
    missing = {
        path for kind, path in map(_entry, entries) if kind in ("dev", "lib") and not _leads_somewhere(root, path)
    }
    return {"files": files, "missing": sorted(missing)[:_MOST]}


def _digest(root: Root, patterns: Iterable[str]) -> str | None:
    """One hash of all files that match, by names and contents; None where there is none, or one can't be read."""
    digest = hashlib.sha256()
    paths = sorted(path for pattern in patterns for path in root.glob(pattern))
    for path in paths:
        try:
            content = root.read_bytes(path)
        except HostError:
            return None
        # A length before each part: what moves from one file to the next changes the hash.
        for part in (path.encode(), content or b""):
            digest.update(b"%d:%b" % (len(part), part))
    return f"sha256:{digest.hexdigest()}" if paths else None


def _entry(line: str) -> tuple[str, str]:
    kind, _, path = line.partition(",")
    return kind.strip(), path.strip()


def _leads_somewhere(root: Root, path: str) -> bool:
    """Whether an entry leads somewhere; entries may be patterns, and libraries links."""
    if not path.startswith("/"):
        return True
    real = root.real(path)
    return bool(root.glob(path)) or (real is not None and root.exists(real))


def _swap_mib(root: Root) -> int:
    return sum(map(int, _SWAP.findall(root.read_text("/proc/swaps") or ""))) // _KIB_PER_MIB


def _without_link(root: Root) -> list[str]:
    """The GPUs' device files without a link in /dev/char, by which systemd looks them up when it reloads."""
    paths = []
    for path in (*root.glob("/dev/nvidia[0-9]*"), *_CONTROL):
        try:
            device = root.path(path).stat().st_rdev
        except OSError:
            continue
        if device and not root.path(f"/dev/char/{os.major(device)}:{os.minor(device)}").is_symlink():
            paths.append(path)
    return paths


def _validations(root: Root) -> list[str] | None:
    """What the GPU Operator's validator noted down; None where it was never here."""
    if not root.exists(_VALIDATIONS):
        return None
    return [path.rpartition("/")[2] for path in root.glob(f"{_VALIDATIONS}/*")]
