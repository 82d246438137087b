"""Tells whether this machine can run a file, from its first bytes and its libraries."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from toolchain.official import this_platform

_ELF = b"\x7fELF"
_64_BIT_LITTLE_ENDIAN = b"\x02\x01"
_PROCESSORS = {62: "amd64", 183: "arm64"}
# Offsets and types of the ELF format, in files of 64 bits.
_MACHINE = struct.Struct("<18xH")
_PROGRAM_HEADERS = struct.Struct("<32xQ14xHH")
_PROGRAM_HEADER = struct.Struct("<I4xQ16xQ")
_INTERPRETER = 3
_LOADER_SECONDS = 10.0
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class _Elf:
    """What the head of a Linux program says; the loader is None where it needs none."""

    processor: str
    loader: Path | None


def problem(file: Path, *, alone: bool) -> str | None:
    """The reason why this machine can't run a file, as part of a sentence, or None.

    Args:
        file: A readable file.
        alone: Whether the file stands without the files that it was made with: then it may be no script.
    """
    machine = this_platform()
    with file.open("rb") as opened:
        content = opened.read(_HEAD_BYTES)
    if content.startswith(b"#!"):
        return "it is a script, which needs other files of its image" if alone else None
    if not content.startswith(_ELF):
        # Other systems have formats of their own, and refuse by themselves what is none.
        return "it is no program" if machine.system == "linux" else None
    try:
        elf = _read(content)
    except struct.error:
        return "it is damaged"
    if (machine.system, machine.processor) != ("linux", elf.processor):
        return f"it is a program for linux/{elf.processor}, and this machine is {machine}"
    return None if elf.loader is None else _missing_libraries(file, elf.loader)


def _read(content: bytes) -> _Elf:
    if content[4:6] != _64_BIT_LITTLE_ENDIAN:
        return _Elf("another processor", None)
    (machine,) = _MACHINE.unpack_from(content)
    offset, size, count = _PROGRAM_HEADERS.unpack_from(content)
    loader = None
    for number in range(count):
        kind, start, length = _PROGRAM_HEADER.unpack_from(content, offset + number * size)
        if kind == _INTERPRETER:
            loader = Path(content[start : start + length].rstrip(b"\0").decode(errors="replace"))
    return _Elf(_PROCESSORS.get(machine, f"processor {machine}"), loader)


def _missing_libraries(file: Path, loader: Path) -> str | None:
    """Ask the program's loader, which finds the libraries and does not start the program."""
    if not loader.is_file():
        return f"it is dynamically linked, and this machine has no {loader}"
    try:
        answer = subprocess.run(
            [loader, "--list", file],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOADER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it is dynamically linked, and {loader} can't be asked for its libraries: {error}"
    if answer.returncode:
        return f"it is dynamically linked, and this machine lacks libraries that it needs: {answer.stderr.strip()}"
    return None
