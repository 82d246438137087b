"""Container images built without a registry: a base image out of this machine's own Python."""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pip

from testbed.stacks import ROOT

_ENVIRONMENT = ["PATH=/usr/bin", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "PYTHONPATH=/pip"]


BASE_IMAGE = "localhost/base:1"
"""This machine's Python; an image's own name, since buildah would ask a registry for one without a host."""
_OF_WHEELS = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")
"""What manylinux wheels may load (PEP 600) and this Python may not."""


class Builder:
    """buildah with storage of its own, which goes with the folder.

    Attributes:
        folder: of storage and base image.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        storage = ["--storage-driver", "vfs", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._command = ["buildah", *storage]

    def run(self, *arguments: str) -> str:
        """Run a buildah command; its standard output."""
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    def agents(self) -> str:
        """The image of agents/Containerfile; its name."""
        return self._own("agents", ROOT / "agents/Containerfile", ROOT / "agents/admission/requirements.txt")

    def metrics(self) -> str:
        """The image of agents/metrics/Containerfile; its name."""
        return self._own("metrics", ROOT / "agents/metrics/Containerfile", ROOT / "agents/metrics/requirements.txt")

    def _own(self, name: str, containerfile: Path, requirements: Path) -> str:
        base = self.base_with_python(requirements)
        arguments = ["--isolation", "chroot", "--pull-never", "--build-arg", f"BASE={base}"]
        tag = f"localhost/{name}:1"
        self.run("build", "--quiet", *arguments, "--file", str(containerfile), "--tag", tag, str(ROOT))
        return tag

    def image(self, name: str, base: str, root: Path, *config: str) -> None:
        """An image of what lies in a folder.

        Args:
            name: with a tag.
            base: another image, or `scratch`.
            root: laid over the base.
            config: arguments of `buildah config`.
        """
        container = self.run("from", "--pull-never", base)
        self.run("copy", "--quiet", container, str(root), "/")
        self.run("config", *config, container)
        self.run("commit", "--quiet", container, name)
        self.run("rm", container)

    def archive(self, name: str) -> Path:
        """Write an image into a docker-archive, which container runtimes import."""
        path = self.folder / f"{name.replace('/', '-').replace(':', '-')}.tar"
        path.unlink(missing_ok=True)
        self.run("push", "--quiet", name, f"docker-archive:{path}:{name}")
        return path

    def base_with_python(self, requirements: Path) -> str:
        """An image with this Python, pip, and the wheels of some requirements; its name.

        Args:
            requirements: a hashed file; its wheels are downloaded by pip.
        """
        root = self.folder / "base"
        executable = Path(sys.executable).resolve()
        stdlib = Path(sysconfig.get_path("stdlib"))
        skip = shutil.ignore_patterns("site-packages", "dist-packages", "test", "tests", "__pycache__", "config-*")
        shutil.copytree(stdlib, root / stdlib.relative_to("/"), ignore=skip, symlinks=True)
        copy_with_libraries([executable, *(stdlib / "lib-dynload").glob("*.so")], root)
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/python3").symlink_to(executable)
        shutil.copytree(Path(pip.__file__).parent, root / "pip/pip", ignore=skip)
        for name in ("tmp", "proc", "etc"):
            (root / name).mkdir(exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0::/:/\n", encoding="ascii")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        download += ["--only-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
        subprocess.run([*download, "--dest", str(root / "wheels")], check=True, timeout=300)
        self.image(BASE_IMAGE, "scratch", root, *[part for entry in _ENVIRONMENT for part in ("--env", entry)])
        return BASE_IMAGE


def copy_with_libraries(programs: list[Path], root: Path) -> None:
    """Copy programs of this machine and what they load to the same paths below `root`."""
    for path in {*programs, *_libraries(programs)}:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _libraries(programs: list[Path]) -> Iterator[Path]:
    """The shared libraries that programs load, under the names they load them by."""
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            path = Path(library)
            yield path
            if path.name == "libc.so.6":
                yield from (path.parent / name for name in _OF_WHEELS if (path.parent / name).exists())
