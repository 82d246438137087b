"""What a kubelet does to the files of a pod."""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path


def mount(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a Secret's or ConfigMap's volume, or its next version: all files change at once.

    Each version lies in a folder of its own, behind the link `..data`; every file is a link through it.
    """
    folder.mkdir(exist_ok=True)
    version = folder / f"..{secrets.token_hex(4)}"
    version.mkdir()
    for name, content in files.items():
        (version / name).write_bytes(content)
    data, following = folder / "..data", folder / "..data_tmp"
    before = data.readlink() if data.is_symlink() else None
    following.symlink_to(version.name)
    following.replace(data)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    if before is not None:
        shutil.rmtree(folder / before)
