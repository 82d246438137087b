"""Writing files so that a killed writer never leaves half of one."""

import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step, readable by its owner only; an unchanged file is left alone."""
    if path.is_file() and path.read_bytes() == content:
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as temporary:
            temporary.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
