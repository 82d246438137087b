"""What containerd is told and what it makes of that: the files, and the merged result, of which only names are told.

A configuration may hold a registry's password. So no text of a file is told, only versions, keys and runtimes.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError
from agents.host.look import distribution, effective
from agents.host.look.effective import Effective, Files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.host.commands import Tools
    from agents.host.look.distribution import Layout

NVIDIA = re.compile(r"""runtimes\.["']?nvidia["']?\]""")
"""Begins the `nvidia` runtime's section in a containerd configuration."""
NVIDIA_FILE = "99-nvidia.toml"
"""nvidia-ctk's and the GPU Operator's own name, so that two of them can't exist."""
DOCKER_CONFIG = "/etc/docker/daemon.json"
_DOCKERS = "/etc/containerd/config.toml"
_NUMBER = re.compile(r"v?(\d+\.\d+\.\d+)")
_LONGEST_REASON = 300
_MOST_KEYS = 20


def examine(tools: Tools) -> dict[str, Any] | None:
    """What is known of the distribution's containerd; None where there is no Kubernetes distribution.

    Nothing is written but candidates in a private temporary folder, which goes again.
    """
    signs = distribution.detect(tools.root)
    if signs.name == "none":
        return None
    try:
        layout = distribution.layout(tools.root, signs.name)
    except HostError as error:
        return _answer("", reason=error.message)
    # A folder that only root may enter looks empty.
    main = tools.root.read_text(layout.effective)
    if main is None:
        return _answer(layout.effective, version_of=_version(tools, layout), reason="is not there, or needs root")
    files = _drop_ins(tools, layout, main)
    answer = _answer(
        layout.effective,
        version_of=_version(tools, layout),
        file_version=effective.file_version(main),
        drop_ins=[_drop_in(layout, main, path, text) for path, text in files.items()],
        elsewhere=_elsewhere(tools, layout),
    )
    if layout.program(tools, "containerd") is None:
        return {**answer, "unseen": f"its program is not in {', '.join(layout.programs) or 'PATH'}"}
    try:
        now = _merged(tools, layout, main, files)
        others = {path: text for path, text in files.items() if not path.endswith(f"/{NVIDIA_FILE}")}
        changed = now.changed_beside_nvidia(_merged(tools, layout, main, others)) if len(others) < len(files) else []
    except HostError as error:
        return {**answer, "refused": error.message[-_LONGEST_REASON:]}
    return {**answer, "merged": _summary(now), "changed": changed[:_MOST_KEYS]}


def _answer(  # noqa: PLR0913 - the keys of an answer
    config: str,
    *,
    version_of: str | None = None,
    file_version: int | None = None,
    drop_ins: list[dict[str, Any]] | None = None,
    elsewhere: list[str] | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    return {
        "config": config,
        "version": version_of,
        "file_version": file_version,
        "drop_ins": drop_ins or [],
        "elsewhere": elsewhere or [],
        "merged": None,
        "changed": [],
        "refused": None,
        "unseen": reason,
    }


def _version(tools: Tools, layout: Layout) -> str | None:
    program = layout.program(tools, "containerd")
    match = _NUMBER.search(tools.output_of(program, "--version") or "") if program else None
    return match.group(1) if match else None


def _drop_ins(tools: Tools, layout: Layout, main: str) -> dict[str, str]:
    """The drop-in files by path: of the folder that is imported, and of the distribution's own."""
    imported = [entry.rpartition("/")[0] for entry in effective.imports(main) if entry.startswith("/")]
    folders = dict.fromkeys([*imported, layout.drop_ins])
    paths = dict.fromkeys(path for folder in folders for path in tools.root.glob(f"{folder}/*.toml"))
    texts = ((path, tools.root.read_text(path)) for path in paths)
    return {path: text for path, text in texts if text is not None}


def _drop_in(layout: Layout, main: str, path: str, text: str) -> dict[str, Any]:
    return {
        "path": path,
        "version": effective.file_version(text),
        "imported": _is_imported(layout, main, path),
        "nvidia": bool(NVIDIA.search(text)),
    }


def _is_imported(layout: Layout, main: str, path: str) -> bool:
    base = layout.effective.rpartition("/")[0]
    entries = [entry if entry.startswith("/") else f"{base}/{entry}" for entry in effective.imports(main)]
    return any(fnmatch.fnmatchcase(path, entry) for entry in entries)


def _elsewhere(tools: Tools, layout: Layout) -> list[str]:
    """Files of another containerd on the host, Docker's mostly, that hold the nvidia runtime."""
    if layout.effective == _DOCKERS:
        return []
    paths = [_DOCKERS, *tools.root.glob("/etc/containerd/conf.d/*.toml")]
    return [path for path in paths if NVIDIA.search(tools.root.read_text(path) or "")]


def _merged(tools: Tools, layout: Layout, main: str, files: Mapping[str, str]) -> Effective:
    imported = [path for path in files if _is_imported(layout, main, path)]
    folder = imported[0].rpartition("/")[0] if imported else layout.drop_ins
    drop_ins = {path.rpartition("/")[2]: files[path].encode() for path in imported if path.startswith(f"{folder}/")}
    try:
        staging = tempfile.mkdtemp(prefix="kai-anywhere-look-")
    except OSError as error:
        raise HostError(f"No temporary folder can be made: {error.strerror}.", "Make room in /tmp.") from error
    try:
        return effective.merged(tools, layout, Path(staging), Files(main, folder, drop_ins))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _summary(now: Effective) -> dict[str, Any]:
    depth = len(now.runtimes)
    names = {key[depth] for key in now.flat if key[:depth] == now.runtimes and len(key) > depth}
    cgroup = ("options", "SystemdCgroup")
    return {
        "default_runtime": str(now.flat.get((*now.runtimes[:-1], "default_runtime_name"), "")),
        "runtimes": sorted(names),
        "nvidia_program": now.nvidia_program,
        "systemd_cgroup": {name: bool(now.runtime(name).get(cgroup, False)) for name in ("runc", "nvidia")},
    }
