"""Docker's images into a real containerd: streamed, and only what is missing or different."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.cluster import Distribution
from testbed.waiting import eventually
from tests.support.hosts.roots import SOCKETS, Board, HostRoot, desired, prepare

pytestmark = pytest.mark.engine

_REFERENCE = "registry/local/kai/binder:0.0.0"
_WANTED = desired(Board.X86, toolkit={"owner": "operator", "mode": "auto"}, images=[{"reference": _REFERENCE}])
# Layers are unpacked without the right to mount.
_NATIVE = {"CONTAINERD_SNAPSHOTTER": "native"}


def _archive(path: Path, text: str) -> str:
    """Write an image as `docker save` does, and give its identity."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo("hello")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    identity = hashlib.sha256(config).hexdigest()
    manifest = [
        {"Config": f"{identity}.json", "RepoTags": ["registry/local/kai/binder:0.0.0"], "Layers": ["layer.tar"]}
    ]
    files = {f"{identity}.json": config, "layer.tar": layer.getvalue(), "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return f"sha256:{identity}"


def _docker(host: HostRoot, archive: Path, identity: str) -> None:
    """Put a stand-in for Docker on the host that has one image."""
    calls = host.folder.parent / "saved"
    shutil.copy(shutil.which("cat") or "/bin/cat", host.programs / "cat")
    host.program(
        "docker",
        f'case "$1" in save) echo "$2" >> {calls}; cat {archive};; image) echo {identity};; *) exit 1;; esac',
    )


@pytest.fixture
def host(containerd_1: Path) -> Iterator[HostRoot]:
    """An x86 host whose k3s runs a real containerd."""
    # A socket's path has at most 107 bytes, and pytest's own folders are long.
    with tempfile.TemporaryDirectory(prefix="kai-") as short:
        state = Path(short)
        root = prepare(state / "host", Board.X86, Distribution.K3S)
        for name in ("containerd", "ctr"):
            root.real(name, containerd_1.with_name(name), at=f"/var/lib/rancher/k3s/data/current/bin/{name}")
        socket = root.path(SOCKETS[Distribution.K3S])
        socket.parent.mkdir(parents=True)
        config = state / "config.toml"
        config.write_text(
            f'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'root = "{state}/root"\nstate = "{state}/state"\n[grpc]\n  address = "{socket}"\n'
        )
        with subprocess.Popen(
            [containerd_1, "--config", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as daemon:
            eventually(socket.exists)
            yield root
            daemon.terminate()


def test_an_image_is_imported_once_and_again_when_it_differs(host: HostRoot, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    saved = host.folder.parent / "saved"
    _docker(host, archive, _archive(archive, "first"))

    assert host.run("check", desired=_WANTED, environment=_NATIVE).code == 3
    assert not saved.exists()
    first = host.run("configure", desired=_WANTED, environment=_NATIVE)
    assert (first.code, first.answer["changed"]) == (0, True), first.errors
    assert host.run("check", desired=_WANTED, environment=_NATIVE).code == 0
    again = host.run("configure", desired=_WANTED, environment=_NATIVE)
    assert (again.code, again.answer["changed"]) == (0, False)
    assert len(saved.read_text().splitlines()) == 1

    _docker(host, archive, _archive(archive, "second"))
    other = host.run("configure", desired=_WANTED, environment=_NATIVE)
    assert (other.code, other.answer["changed"]) == (0, True), other.errors
    assert len(saved.read_text().splitlines()) == 2
    assert host.run("check", desired=_WANTED, environment=_NATIVE).code == 0


def test_a_broken_stream_and_a_missing_image_are_told(host: HostRoot, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    identity = _archive(archive, "first")
    archive.write_bytes(archive.read_bytes()[:1500])
    _docker(host, archive, identity)
    broken = host.run("configure", desired=_WANTED, environment=_NATIVE)
    assert broken.code == 1
    assert "can't be imported" in broken.answer["error"]["message"]
    host.program("docker", "echo 'Error: No such image' >&2; exit 1")
    missing = host.run("configure", desired=_WANTED, environment=_NATIVE)
    assert missing.code == 1
    assert "Docker has no image registry/local/kai/binder:0.0.0" in missing.answer["error"]["message"]
