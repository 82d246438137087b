"""A file that a command makes is whole, or not there."""

import errno
from pathlib import Path

import pytest

from operations.errors import OperationError
from operations.new_files import new_file


def test_what_could_not_be_written_to_its_end_is_not_left_there(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"

    def write() -> None:
        with new_file(file, option="--output") as out:
            out.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OperationError, match="No space left on device"):
        write()
    assert not file.exists()
    file.write_bytes(b"somebody's")
    with pytest.raises(OperationError, match=r"exists. Choose another name with --output."):
        write()
    assert file.read_bytes() == b"somebody's"
