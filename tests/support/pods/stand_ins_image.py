"""The images of the stand-ins, and the pause image: this machine's Python, shell and little else."""

import shutil
from pathlib import Path

import grpc
import pynvml
import typing_extensions

from testbed.stacks import ROOT
from tests.support.pods.images import Builder, copy_with_libraries
from tests.support.pods.real_node import PAUSE_IMAGE

STAND_INS_IMAGE = "localhost/stand-ins:1"
RESERVATION_IMAGE = "localhost/reservation-stand-in:1"
"""In the place of KAI's resourcereservation, whose name the simulator would take for its own pods."""
APPLICATION = ("python3", "/opt/stand_ins/gvirtus_application.py")
"""The command of the stand-in for an application; without a command, the image is the device plugin."""
_GVIRTUS_HOME = "/usr/local/gvirtus"
_SCRIPTS = ROOT / "tests/support/pods/stand_ins"


def build(builder: Builder, base: str) -> tuple[Path, ...]:
    """Build the images; their archives.

    Args:
        builder: to build them with.
        base: an image with this machine's Python.
    """
    root = builder.folder / "stand-ins"
    programs = root / "bin"
    programs.mkdir(parents=True)
    # Of a backend's command and probes.
    for name in ("bash", "sh", "grep"):
        copy_program(name, root)
    shutil.copytree(_SCRIPTS, root / "opt/stand_ins", ignore=shutil.ignore_patterns("__pycache__"))
    backend = root / _GVIRTUS_HOME.lstrip("/") / "bin/gvirtus-backend"
    backend.parent.mkdir(parents=True)
    script = (_SCRIPTS / "gvirtus_backend.py").read_text(encoding="utf-8")
    backend.write_text(f"#!/usr/bin/python3\n{script}", encoding="utf-8")
    backend.chmod(0o755)
    dependencies = root / "opt/dependencies"
    shutil.copytree(Path(grpc.__file__).parent, dependencies / "grpc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(typing_extensions.__file__, dependencies)
    builder.image(
        STAND_INS_IMAGE,
        base,
        root,
        *("--env", "PATH=/usr/bin:/bin"),
        *("--env", f"GVIRTUS_HOME={_GVIRTUS_HOME}"),
        *("--env", "PYTHONPATH=/opt/dependencies"),
        *("--entrypoint", '["python3", "/opt/stand_ins/device_plugin.py"]'),
    )
    reservation = builder.folder / "reservation"
    (reservation / "opt/dependencies").mkdir(parents=True)
    shutil.copy(pynvml.__file__, reservation / "opt/dependencies")
    program = '["python3", "/opt/stand_ins/reservation.py"]'
    builder.image(RESERVATION_IMAGE, STAND_INS_IMAGE, reservation, "--entrypoint", program)
    pause = builder.folder / "pause"
    (pause / "bin").mkdir(parents=True)
    copy_program("sleep", pause)
    builder.image(PAUSE_IMAGE, "scratch", pause, "--entrypoint", '["/bin/sleep", "infinity"]')
    return tuple(builder.archive(name) for name in (STAND_INS_IMAGE, RESERVATION_IMAGE, PAUSE_IMAGE))


def copy_program(name: str, root: Path) -> None:
    """Copy a program of this machine, with its libraries, to where a command of that name finds it."""
    program = shutil.which(name, path="/bin:/usr/bin")
    assert program is not None, f"this machine has no {name}"
    executable = Path(program).resolve()
    copy_with_libraries([executable], root)
    if not (target := root / "bin" / name).exists():
        target.parent.mkdir(exist_ok=True)
        shutil.copy(executable, target)
