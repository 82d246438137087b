"""Whether this machine can run a file, read from its first bytes."""

import struct
from pathlib import Path

import pytest

from toolchain import executable
from toolchain.executable import problem
from toolchain.official import Platform, this_platform

_AMD64, _ARM64, _RISCV = 62, 183, 243


def elf(machine: int, loader: Path | None = None) -> bytes:
    """The head of a Linux program of 64 bits; with a loader, of one that is dynamically linked."""
    name = f"{loader}\0".encode() if loader else b""
    header = struct.pack(
        "<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 2, machine, 1, 0, 64, 0, 0, 64, 56, 2 if loader else 0, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0, 0, 0)
    interpreter = struct.pack("<IIQQQQQQ", 3, 0, 64 + 56 * 2, 0, 0, len(name), len(name), 1)
    return header + load + interpreter + name


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file on a Linux machine with an amd64 processor."""
    monkeypatch.setattr(executable, "this_platform", lambda: Platform("linux", "amd64"))
    return tmp_path / "program"


def test_a_static_program_for_this_processor_runs(file: Path) -> None:
    file.write_bytes(elf(_AMD64))
    assert problem(file, alone=True) is None


@pytest.mark.parametrize(("machine", "processor"), [(_ARM64, "arm64"), (_RISCV, "processor 243")])
def test_a_program_for_another_processor_is_told_with_both(file: Path, machine: int, processor: str) -> None:
    file.write_bytes(elf(machine))
    assert problem(file, alone=True) == f"it is a program for linux/{processor}, and this machine is linux/amd64"


def test_a_linux_program_does_not_run_elsewhere_and_others_are_left_to_the_system(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executable, "this_platform", lambda: Platform("darwin", "arm64"))
    file.write_bytes(elf(_ARM64))
    assert problem(file, alone=False) == "it is a program for linux/arm64, and this machine is darwin/arm64"
    file.write_bytes(b"\xcf\xfa\xed\xfe")
    assert problem(file, alone=False) is None


@pytest.mark.parametrize("content", [b"", b"\xcf\xfa\xed\xfe", b"text"])
def test_what_is_no_program_is_told(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert problem(file, alone=False) == "it is no program"


def test_a_program_that_is_cut_off_is_told(file: Path) -> None:
    file.write_bytes(elf(_AMD64)[:30])
    assert problem(file, alone=False) == "it is damaged"


def test_a_script_needs_what_is_around_it(file: Path) -> None:
    file.write_bytes(b"#!/bin/sh\n")
    assert problem(file, alone=False) is None
    assert problem(file, alone=True) == "it is a script, which needs other files of its image"


def test_a_dynamically_linked_program_needs_its_loader(file: Path, tmp_path: Path) -> None:
    file.write_bytes(elf(_AMD64, tmp_path / "ld.so"))
    assert problem(file, alone=True) == f"it is dynamically linked, and this machine has no {tmp_path / 'ld.so'}"


def test_a_dynamically_linked_program_needs_what_its_loader_does_not_find(file: Path, tmp_path: Path) -> None:
    loader = tmp_path / "ld.so"
    file.write_bytes(elf(_AMD64, loader))
    loader.write_text(f'#!/bin/sh\n[ "$1" = --list ] && [ "$2" = {file} ]\n')
    loader.chmod(0o755)
    assert problem(file, alone=True) is None
    loader.write_text("#!/bin/sh\necho 'libc.so.6: version GLIBC_2.99 not found' >&2; exit 1\n")
    assert problem(file, alone=True) == (
        "it is dynamically linked, and this machine lacks libraries that it needs: "
        "libc.so.6: version GLIBC_2.99 not found"
    )


@pytest.mark.skipif(this_platform().system != "linux", reason="reads a program of Linux")
def test_a_program_of_this_machine_runs() -> None:
    assert problem(Path("/bin/sh"), alone=True) is None
