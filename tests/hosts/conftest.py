"""Fixtures with the real programs; containerd 1.x is the distribution's package."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import toolchain
from config.cluster import Distribution
from tests.support.hosts.roots import PROGRAM_FOLDERS, HostRoot, Serve
from tests.support.programs import CONTAINERD, HOSTS


@pytest.fixture(scope="session")
def programs() -> Mapping[toolchain.Program, Path]:
    """nvidia-ctk and containerd 2.x."""
    return toolchain.install(HOSTS)


@pytest.fixture(scope="session")
def containerd_1() -> Path:
    """The containerd 1.x of this machine's packages."""
    program = shutil.which("containerd", path="/usr/bin:/usr/local/bin")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout if program else ""
    if not re.search(r"\s1\.\d+\.\d+", said):
        pytest.skip("needs containerd 1.x (Debian's package `containerd`)")
    assert program
    return Path(program)


@pytest.fixture(params=["1.x", "2.x"])
def containerd(request: pytest.FixtureRequest, programs: Mapping[toolchain.Program, Path]) -> Path:
    """Each line of containerd."""
    if request.param == "2.x":
        return programs[CONTAINERD]
    containerd = request.getfixturevalue("containerd_1")
    assert isinstance(containerd, Path)
    return containerd


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer on the sockets of container runtimes as long as the test runs."""
    server = Serve()
    yield server
    server.close()


def equip(host: HostRoot, distribution: Distribution, nvidia_ctk: Path, containerd: Path, calls: Path) -> None:
    """Put the real programs on a host, and in systemd's and snapd's place scripts that note what they are asked."""
    folder = PROGRAM_FOLDERS.get(distribution)
    host.real("nvidia-ctk", nvidia_ctk)
    host.real("containerd", containerd, at=f"{folder}/containerd" if folder else None)
    for name in ("systemctl", "snap"):
        host.program(name, f'echo "{name} $@" >> {calls}')
