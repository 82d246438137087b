"""systemd's units on the host: which there are, and what they start."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from agents.host.errors import HostError

if TYPE_CHECKING:
    from agents.host.root import Root

_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/generator.late",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""Where systemd looks for units, the first one wins; the third one holds those of SysV scripts."""
_START = re.compile(r"^ExecStart[ \t]*=[ \t]*(\S.*)$", re.MULTILINE)


def is_there(root: Root, unit: str) -> bool:
    """Whether systemd can start a unit: it has a file, and nobody has masked it."""
    places = [root.path(f"{folder}/{unit}.service") for folder in _FOLDERS]
    # As `systemctl mask` leaves it, for good or until the next boot: systemd refuses to start it.
    if any(place.is_symlink() and os.readlink(str(place)) == os.devnull for place in places):
        return False
    # In a prepared root, a link may lead nowhere.
    return any(place.is_symlink() or place.exists() for place in places)


def refuse_other_configuration(root: Root, unit: str, program: str, options: tuple[str, ...], config: str) -> None:
    """Refuse a runtime that somebody's unit starts with another file: what is written would never be read.

    A file that a variable names can't be told.

    Args:
        root: The host.
        unit: What starts the runtime.
        program: The runtime.
        options: Each names the file.
        config: The file that the runtime reads without them.

    Raises:
        HostError: It is started with another one.
    """
    path, command = _start_of(root, unit)
    names = "|".join(options)
    said = re.search(
        rf"""(?:^|[\s/"']){program}["']?(?:\s+\S+)*?\s+["']?(?:{names})(?:=|\s+)["']?([^"'\s$]+)(?=["'\s]|$)""", command
    )
    if said and root.real(said.group(1)) != root.real(config):
        raise HostError(
            f"{path} starts {unit} with the file {said.group(1)}, so it does not read {config}.",
            f"Put a link to {said.group(1)} at {config}, or take the option away and restart {unit}; "
            "nothing was changed.",
        )


def _start_of(root: Root, unit: str) -> tuple[str, str]:
    """The file that says last what a unit starts, and that command; drop-ins come after the unit, by their names."""
    # Of drop-ins with one name, too, the first folder's wins.
    places = [path for folder in reversed(_FOLDERS) for path in root.glob(f"{folder}/{unit}.service.d/*.conf")]
    files = {path.rpartition("/")[2]: path for path in places}
    units = [f"{folder}/{unit}.service" for folder in _FOLDERS if root.is_file(f"{folder}/{unit}.service")]
    start = ("", "")
    for path in [*units[:1], *(files[name] for name in sorted(files))]:
        commands = _START.findall((root.read_text(path) or "").replace("\\\n", " "))
        start = (path, commands[-1]) if commands else start
    return start
