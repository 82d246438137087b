"""A file that a command makes is whole, or not there."""

import errno
import os
from pathlib import Path

import pytest

from operations.errors import OperationError
from operations.new_files import new_file, write_whole


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


def test_a_full_disk_leaves_what_was_there_and_no_half_of_what_was_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "map.html"
    write_whole(file, "yesterday's")
    write = Path.write_text

    def half(self: Path, text: str, **how: str) -> None:
        write(self, text[:4], **how)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left on device"):
        write_whole(file, "today's")
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [
        ("map.html", "yesterday's")
    ]


def test_a_text_goes_through_links_and_into_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "text"
    write_whole(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()
