"""What containerd is told and what it makes of that: the files, and the merged result, of which only names are told.

A configuration may hold a registry's password. So no text of a file is told, only versions, keys and runtimes.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.host.errors import HostError
from agents.host.look import distribution, effective, imports
from agents.host.look.effective import Effective, Files
from agents.host.look.imports import UntriedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.host.commands import Tools
    from agents.host.look.distribution import Layout

NVIDIA = re.compile(r"""runtimes\.["']?nvidia["']?\]""")
"""Begins the `nvidia` runtime's section in a containerd configuration."""
NVIDIA_FILE = "99-nvidia.toml"
"""nvidia-ctk's and the GPU Operator's own name, so that two of them can't exist."""
DOCKER_CONFIG = "/etc/docker/daemon.json"
DOCKER_ENCODING = "utf-8-sig"
"""Docker takes a byte order mark too (from 23.0 on)."""
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
        reason = "is not there, or needs root" if os.geteuid() else "is not there"
        return _answer(layout.effective, version_of=_version(tools, layout), reason=reason)
    version, files = _version(tools, layout), _drop_ins(tools, layout, main)
    answer = _answer(
        layout.effective,
        version_of=version,
        file_version=_file_version(main),
        drop_ins=[_drop_in(layout, main, path, text) for path, text in files.items()],
        elsewhere=_elsewhere(tools, layout),
    )
    if layout.program(tools, "containerd") is None:
        return {**answer, "unseen": f"its program is not in {', '.join(layout.programs) or 'PATH'}"}
    return {**answer, **_judged(tools, layout, _files(layout, main, files), version or "")}


def _judged(tools: Tools, layout: Layout, files: Files, version: str) -> dict[str, Any]:
    """What containerd makes of the files; where it takes none or nobody can tell, the reason."""
    try:
        files.refuse_untried(layout.effective, containerd_1=version.startswith("1."))
        now = _merged(tools, layout, files)
        others = {name: content for name, content in files.drop_ins.items() if name != NVIDIA_FILE}
        fewer = Files(files.main, files.folder, others)
        without = _merged(tools, layout, fewer) if len(others) < len(files.drop_ins) else now
    except UntriedError as error:
        return {"unseen": error.message[:_LONGEST_REASON]}
    except HostError as error:
        return {"refused": error.message[-_LONGEST_REASON:]}
    return {"merged": _summary(tools, now), "changed": now.changed_beside_nvidia(without)[:_MOST_KEYS]}


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
    imported = [entry.rpartition("/")[0] for entry in _imports(layout, main)]
    folders = dict.fromkeys([*imported, layout.drop_ins])
    paths = dict.fromkeys(path for folder in folders for path in tools.root.glob(f"{folder}/*"))
    shown = [path for path in paths if path.endswith(".toml") or _is_imported(layout, main, path)]
    texts = ((path, tools.root.read_text(path)) for path in shown if tools.root.is_file(path))
    return {path: text for path, text in texts if text is not None}


def _drop_in(layout: Layout, main: str, path: str, text: str) -> dict[str, Any]:
    return {
        "path": path,
        "version": _file_version(text),
        "imported": _is_imported(layout, main, path),
        "nvidia": bool(NVIDIA.search(text)),
    }


def _file_version(text: str) -> int | None:
    try:
        return imports.file_version(text)
    except HostError:
        return None


def _imports(layout: Layout, main: str) -> list[str]:
    try:
        return [imports.absolute(entry, layout.effective) for entry in imports.listed(main)]
    except HostError:
        return []


def _is_imported(layout: Layout, main: str, path: str) -> bool:
    return path != layout.effective and any(fnmatch.fnmatchcase(path, entry) for entry in _imports(layout, main))


def _elsewhere(tools: Tools, layout: Layout) -> list[str]:
    """Files of another containerd on the host, Docker's mostly, that hold the nvidia runtime."""
    if layout.effective == _DOCKERS:
        return []
    paths = [_DOCKERS, *tools.root.glob("/etc/containerd/conf.d/*.toml")]
    return [path for path in paths if NVIDIA.search(tools.root.read_text(path) or "")]


def _files(layout: Layout, main: str, texts: Mapping[str, str]) -> Files:
    imported = [path for path in texts if _is_imported(layout, main, path)]
    folder = imported[0].rpartition("/")[0] if imported else layout.drop_ins
    drop_ins = {path.rpartition("/")[2]: texts[path].encode() for path in imported if path.startswith(f"{folder}/")}
    return Files(main, folder, drop_ins)


def _merged(tools: Tools, layout: Layout, files: Files) -> Effective:
    """What containerd makes of files.

    Raises:
        HostError: It refuses them, or can't be asked, as on a full disk (UntriedError).
    """
    try:
        staging = tempfile.mkdtemp(prefix="kai-anywhere-look-")
        try:
            return effective.merged(tools, layout, Path(staging), files)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        trouble = f"its files can't be tried in a temporary folder: {error.strerror}; make room in /tmp"
        raise UntriedError(trouble, "Look again then.") from error


def _summary(tools: Tools, now: Effective) -> dict[str, Any]:
    program = now.nvidia_program
    depth = len(now.runtimes)
    names = {key[depth] for key in now.flat if key[:depth] == now.runtimes and len(key) > depth}
    cgroup = ("options", "SystemdCgroup")
    return {
        "default_runtime": now.default_runtime,
        "runtimes": sorted(names),
        "nvidia_program": program,
        # A name without a folder is looked for in containerd's own PATH, which nobody else knows.
        "lacks_program": program.startswith("/") and not tools.root.exists(program),
        "systemd_cgroup": {name: bool(now.runtime(name).get(cgroup, False)) for name in ("runc", "nvidia")},
    }
