"""A file that a command makes is whole, or not there."""

import errno
import os
from pathlib import Path

import pytest

from operations.errors import OperationError
from operations.new_files import check_writable, new_file, write_whole
from tests.support.full_disk import room_for


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


def test_a_full_disk_leaves_what_was_there_and_no_half_of_what_was_to_come(tmp_path: Path) -> None:
    file = tmp_path / "map.html"
    write_whole(file, "yesterday's")
    with room_for(1000), pytest.raises(OSError, match="File too large") as refused:
        write_whole(file, "today's " * 1000)
    assert refused.value.filename == str(file)
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [
        ("map.html", "yesterday's")
    ]


def test_a_file_that_is_written_anew_is_no_more_open_to_others_than_before_and_leaves_those_beside_it(
    tmp_path: Path,
) -> None:
    file, other = tmp_path / "map.html", tmp_path / "map.html.new"
    other.write_text("mine", encoding="utf-8")
    file.touch(0o600)
    write_whole(file, "text")
    assert (file.read_text(encoding="utf-8"), file.stat().st_mode & 0o777) == ("text", 0o600)
    assert {path.name for path in tmp_path.iterdir()} == {file.name, other.name}
    assert other.read_text(encoding="utf-8") == "mine"


def test_where_no_file_can_be_made_the_one_that_is_there_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "map.html"
    file.touch()
    number = file.stat().st_ino
    # Root may make files everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    write_whole(file, "text")
    assert (file.read_text(encoding="utf-8"), file.stat().st_ino) == ("text", number)


def test_what_can_not_be_written_is_told_before_the_work_for_it(tmp_path: Path) -> None:
    check_writable(tmp_path / "new", option="--lock")
    (tmp_path / "old").write_text("old", encoding="utf-8")
    check_writable(tmp_path / "old", option="--lock")
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"
    with pytest.raises(OperationError, match=r"there is no such folder. Choose another one with --lock."):
        check_writable(tmp_path / "gone" / "new", option="--lock")
    with pytest.raises(OperationError, match=r"is a folder. Choose a file with --lock."):
        check_writable(tmp_path, option="--lock")


def test_links_in_a_circle_are_no_place_for_a_text(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write_whole(tmp_path / "circle" / "map.html", "text")


def test_a_text_goes_through_links_and_into_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "text"
    write_whole(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()
