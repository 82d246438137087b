"""What a containerd would run with: the distribution's own binary merges candidate files in a staged folder.

How containerd merges differs between 1.x (a file replaces a plugin's whole section) and 2.x (sections are merged, but
files of another version than the main one may be ignored), so nothing is assumed: `containerd config dump` is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.host.errors import HostError
from agents.host.look.toml_dump import Flat, below, flatten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agents.host.commands import Tools
    from agents.host.look.distribution import Layout

CRI_V2 = "io.containerd.grpc.v1.cri"
CRI_V3 = "io.containerd.cri.v1.runtime"
_HEAD = re.compile(r"^\s*\[\[?\s*[\w\"']", re.MULTILINE)
_VERSION = re.compile(r"^\s*version\s*=\s*(\d+)", re.MULTILINE)
_IMPORTS = re.compile(r"^\s*imports\s*=\s*\[(?P<entries>[^\]]*)\]", re.MULTILINE)
_ENTRY = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'")
_SHOWN = 5


@dataclass(frozen=True)
class Effective:
    """A merged configuration."""

    text: str
    flat: Flat

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The key under which the runtimes stand."""
        plugin = CRI_V3 if any(key[:2] == ("plugins", CRI_V3) for key in self.flat) else CRI_V2
        return ("plugins", plugin, "containerd", "runtimes")

    def runtime(self, name: str) -> Flat:
        """A runtime's settings; empty where there is none of that name."""
        return below(self.flat, (*self.runtimes, name))

    @property
    def nvidia_program(self) -> str:
        """What the `nvidia` runtime runs; empty where it says nothing."""
        return str(self.runtime("nvidia").get(("options", "BinaryName"), ""))

    @property
    def serves_nvidia(self) -> bool:
        """Whether the `nvidia` runtime is there, runs NVIDIA's program and uses runc's cgroup driver."""
        nvidia, runc = self.runtime("nvidia"), self.runtime("runc")
        program = self.nvidia_program.rpartition("/")[2]
        driver = ("options", "SystemdCgroup")
        same = nvidia.get(driver, False) == runc.get(driver, False)
        return program.startswith("nvidia-container-runtime") and bool(runc) and same

    @property
    def in_force(self) -> Flat:
        """Everything but what only says where the rest comes from."""
        return {key: value for key, value in self.flat.items() if key[0] not in ("imports", "version")}

    def changed_beside_nvidia(self, other: Effective) -> list[str]:
        """The keys, dotted and sorted, in which two configurations differ outside the `nvidia` runtime."""
        ours = {(*self.runtimes, "nvidia"), (*other.runtimes, "nvidia")}
        mine, theirs = self.in_force, other.in_force
        return sorted(
            ".".join(key)
            for key in mine.keys() | theirs.keys()
            if key[:5] not in ours and mine.get(key) != theirs.get(key)
        )

    def refuse_worse_than(self, base: Effective) -> None:
        """Refuse a candidate that lacks a runtime or changes anything else.

        Raises:
            HostError: It does; the message says what.
        """
        if not self.serves_nvidia:
            raise HostError(
                "containerd would not serve both runc and nvidia with the new configuration.",
                "Check the files that the main configuration imports; nothing was changed.",
            )
        self.refuse_other_changes(base)

    def refuse_other_changes(self, base: Effective) -> None:
        """Refuse a candidate that changes anything but the nvidia runtime.

        Raises:
            HostError: It does; the message names the keys.
        """
        changed = self.changed_beside_nvidia(base)
        if changed:
            shown = ", ".join(changed[:_SHOWN]) + (" and more" if len(changed) > _SHOWN else "")
            raise HostError(
                f"Preparing the nvidia runtime would change other settings of containerd: {shown}.",
                "Remove from the folder of imported files what is not in force today, and bring main configuration and "
                "imported files to one version (`containerd config migrate`), then run again; nothing was changed.",
            )


def file_version(text: str) -> int | None:
    """A configuration's version, None where the file has no such line (containerd takes it for version 1)."""
    match = _VERSION.search(_top(text))
    return int(match.group(1)) if match else None


def imports(text: str) -> list[str]:
    """A configuration's imports."""
    match = _IMPORTS.search(_top(text))
    return [double or single for double, single in _ENTRY.findall(match.group("entries"))] if match else []


def with_import(text: str, pattern: str) -> str:
    """A configuration that imports a pattern as its last; the rest of the file, comments included, stays."""
    if pattern in imports(text):
        return text
    match = _IMPORTS.search(_top(text))
    if match:
        entries = match.group("entries").rstrip()
        comma = "" if not entries.strip() or entries.endswith(",") else ","
        space = " " if entries.strip() else ""
        return f'{text[: match.start("entries")]}{entries}{comma}{space}"{pattern}"{text[match.end("entries") :]}'
    line = f'imports = ["{pattern}"]\n'
    version = _VERSION.search(_top(text))
    if version is None:
        return line + text
    end = text.find("\n", version.end())
    return f"{text}\n{line}" if end < 0 else text[: end + 1] + line + text[end + 1 :]


def without_import(text: str, pattern: str, *, empty_list: bool) -> str:
    """A configuration that does not import a pattern any more; the rest of the file stays.

    Args:
        text: The configuration.
        pattern: What it imports.
        empty_list: Whether a list that gets empty stays.
    """
    match = _IMPORTS.search(_top(text))
    if match is None or pattern not in imports(text):
        return text
    entries = re.sub(rf"""\s*,?\s*(["']){re.escape(pattern)}\1""", "", match.group("entries"), count=1)
    if entries.strip(" \t\n,") or empty_list:
        return text[: match.start("entries")] + entries.lstrip(", ") + text[match.end("entries") :]
    end = text.find("\n", match.end())
    return text[: match.start()] + ("" if end < 0 else text[end + 1 :])


@dataclass(frozen=True)
class Files:
    """A main configuration and the files of its drop-in folder by name.

    Attributes:
        main: The main configuration.
        folder: The drop-in folder's host path, as the main file's imports name it.
        drop_ins: What lies in it.
    """

    main: str
    folder: str
    drop_ins: Mapping[str, bytes]


def merged(tools: Tools, layout: Layout, staging: Path, candidate: Files) -> Effective:
    """What the distribution's containerd makes of files.

    Args:
        tools: The host's programs.
        layout: The distribution.
        staging: An empty or missing folder.
        candidate: The files.

    Raises:
        HostError: containerd is missing or refuses the files.
    """
    program = layout.program(tools, "containerd")
    if program is None:
        where = ", ".join(layout.programs) or "PATH"
        raise HostError(f"The containerd of {layout.name} is not found in {where}.", "Install it, then run again.")
    staged = staging / "conf.d"
    staged.mkdir(parents=True)
    for name, content in candidate.drop_ins.items():
        (staged / name).write_bytes(content)
    config = staging / "config.toml"
    config.write_text(_moved(tools, layout, candidate, str(staged)), encoding="utf-8")
    finished = tools.check(
        [program, "--config", str(config), "config", "dump"],
        f"`containerd --config {layout.effective} config dump` says what is wrong with the files; nothing was changed.",
    )
    return Effective(finished.output, flatten(finished.output))


def _moved(tools: Tools, layout: Layout, candidate: Files, staged: str) -> str:
    """The main file with its imports pointing to the staged folder, and to where the others really lie."""
    main, folder, moved = candidate.main, candidate.folder, []
    for entry in imports(main):
        # containerd takes relative patterns from the main file's folder.
        path = entry if entry.startswith("/") else f"{layout.config.rpartition('/')[0]}/{entry}"
        inside = path.startswith(f"{folder}/")
        moved.append(staged + path[len(folder) :] if inside else str(tools.root.path(path)))
    line = "imports = [" + ", ".join(f'"{entry}"' for entry in moved) + "]"
    top = _top(main)
    # An explicit empty list: newer versions print a default import folder that they do not load.
    head = _IMPORTS.sub(lambda _: line, top, count=1) if _IMPORTS.search(top) else f"{line}\n{top}"
    return head + main[len(top) :]


def _top(text: str) -> str:
    """What stands before the first table."""
    match = _HEAD.search(text)
    return text[: match.start()] if match else text
