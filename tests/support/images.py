"""Container images built without a registry: a base image out of this machine's own Python."""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pip

_ENVIRONMENT = ["PATH=/usr/bin", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "PYTHONPATH=/pip"]


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
        for path in {executable, *_libraries([executable, *(stdlib / "lib-dynload").glob("*.so")])}:
            target = root / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin/python3").symlink_to(executable)
        shutil.copytree(Path(pip.__file__).parent, root / "pip/pip", ignore=skip)
        for name in ("tmp", "proc", "etc"):
            (root / name).mkdir(exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0::/:/\n", encoding="ascii")
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        download += ["--only-binary=:all:", "--require-hashes", "--requirement", str(requirements)]
        subprocess.run([*download, "--dest", str(root / "wheels")], check=True, timeout=300)
        container = self.run("from", "scratch")
        self.run("copy", "--quiet", container, str(root), "/")
        self.run("config", *[part for entry in _ENVIRONMENT for part in ("--env", entry)], container)
        self.run("commit", "--quiet", container, "localhost/base")
        self.run("rm", container)
        return "localhost/base"


def _libraries(programs: list[Path]) -> Iterator[Path]:
    """The shared libraries that programs load, under the names they load them by."""
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for found in re.findall(r"(/\S+) \(0x", listed):
            path = Path(found)
            yield path
            if path.name == "libc.so.6":
                yield from (path.parent / name for name in _OF_WHEELS if (path.parent / name).exists())
