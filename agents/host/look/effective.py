"""What a containerd would run with: the distribution's own binary merges candidate files in a staged folder.

How containerd merges differs between 1.x (a file replaces a plugin's whole section) and 2.x (sections are merged, but
files of another version than the main one may be ignored), so nothing is assumed: `containerd config dump` is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agents.host.errors import HostError
from agents.host.look import imports
from agents.host.look.toml_dump import Flat, below, flatten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agents.host.commands import Tools
    from agents.host.look.distribution import Layout
    from agents.host.root import Root

CRI_V2 = "io.containerd.grpc.v1.cri"
CRI_V3 = "io.containerd.cri.v1.runtime"
_SHOWN = 5
_CONVERTED = re.compile(r"(Can't convert ).*(\([^()]*\) to )", re.DOTALL)
"""containerd 1.x tells a value that is of another type than it takes: perhaps a password in digits."""


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
    def default_runtime(self) -> str:
        """Which runtime a pod gets that names none; empty where nothing says it."""
        return str(self.flat.get((*self.runtimes[:-1], "default_runtime_name"), ""))

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


@dataclass(frozen=True)
class Files:
    """A main configuration and the files of its drop-in folder.

    Attributes:
        main: The main configuration.
        folder: The drop-in folder's host path.
        drop_ins: What lies in it, by the path below it.
    """

    main: str
    folder: str
    drop_ins: Mapping[str, bytes]

    def refuse_untried(self, config: str, *, containerd_1: bool) -> None:
        """Refuse imports of which nobody can tell beforehand what they take in.

        Args:
            config: The main configuration's host path.
            containerd_1: Whether containerd is older than 2.0.

        Raises:
            HostError: There is one (UntriedError), or the main configuration is no TOML.
        """
        imports.document(self.main, config)
        listed = {config: imports.listed(self.main)}
        listed.update({f"{self.folder}/{name}": _listed(content) for name, content in self.drop_ins.items()})
        for path, entries in listed.items():
            imports.refuse_untried(entries, path, self.folder, containerd_1=containerd_1)


def drop_ins(root: Root, main: str, config: str, folder: str) -> dict[str, bytes]:
    """The files of a drop-in folder that are imported or would be, by the path below it.

    Args:
        root: The host.
        main: The main configuration.
        config: Its host path.
        folder: The drop-in folder's.

    Raises:
        HostError: A file can't be read.
    """
    contents: dict[str, bytes] = {}
    patterns = [f"{folder}/*.toml", *(imports.absolute(entry, config) for entry in imports.listed(main))]
    while patterns:
        # To containerd two stars are one.
        pattern = patterns.pop().replace("**", "*")
        matches = root.glob(pattern) if pattern.startswith(f"{folder}/") else []
        for path in matches:
            name = path[len(folder) + 1 :]
            if name not in contents and root.is_file(path):
                contents[name] = root.read_bytes(path) or b""
                patterns += [imports.absolute(entry, path) for entry in _listed(contents[name])]
    return contents


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
    staged = _Staged(tools.root, layout.config, candidate.folder, staging)
    (staging / "conf.d").mkdir(parents=True)
    for name, content in candidate.drop_ins.items():
        file = staging / "conf.d" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(staged.drop_in(name, content))
    config = staging / "config.toml"
    # An explicit empty list: newer versions print a default import folder that they do not load.
    config.write_bytes(imports.bytes_of(staged.moved(candidate.main, layout.config)))
    finished = tools.run([program, "--config", str(config), "config", "dump"])
    if finished.code:
        trouble = replace(finished, errors=_CONVERTED.sub(r"\1a value \2", finished.errors)).trouble
        raise HostError(
            f"`{' '.join(finished.command)}` exited with {finished.code}: {trouble}",
            f"`containerd --config {layout.effective} config dump` says what is wrong with the files; nothing was "
            "changed.",
        )
    return Effective(finished.output, flatten(finished.output))


@dataclass(frozen=True)
class _Staged:
    """Files that are tried in a staged folder."""

    root: Root
    config: str
    folder: str
    staging: Path

    def moved(self, text: str, path: str) -> str:
        """A file with its imports pointing to the staged files, and to where the others really lie."""
        return imports.with_imports(
            text, [place for entry in imports.listed(text) for place in self._places(imports.absolute(entry, path))]
        )

    def drop_in(self, name: str, content: bytes) -> bytes:
        """Likewise for an imported file, which may have imports of its own."""
        if not _listed(content):
            return content
        return imports.bytes_of(self.moved(imports.text_of(content), f"{self.folder}/{name}"))

    def _places(self, path: str) -> list[str]:
        if path.startswith(f"{self.folder}/"):
            return [f"{self.staging}/conf.d{path[len(self.folder) :]}"]
        if path == self.config:
            return [f"{self.staging}/config.toml"]
        matches = self.root.glob(path) if "*" in path else []
        # containerd reads no file twice; the main one would be, from two places.
        others = [str(self.root.path(other)) for other in matches if other != self.config]
        return others if self.config in matches else [str(self.root.path(path))]


def _listed(content: bytes) -> list[str]:
    """The imports of an imported file; of what is wrong with it, containerd says more."""
    try:
        return imports.listed(imports.text_of(content))
    except HostError:
        return []
