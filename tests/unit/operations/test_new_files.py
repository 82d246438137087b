"""A file that a command makes is whole, or not there."""

import errno
import os
import resource
import signal
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


def test_a_full_disk_leaves_what_was_there_and_no_half_of_what_was_to_come(tmp_path: Path) -> None:
    file = tmp_path / "map.html"
    write_whole(file, "yesterday's")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # As a disk on which 1,000 bytes are left.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(file, "today's " * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert [(each.name, each.read_text(encoding="utf-8")) for each in tmp_path.iterdir()] == [
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
    assert {each.name for each in tmp_path.iterdir()} == {file.name, other.name}
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


def test_a_text_goes_through_links_and_into_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "text"
    write_whole(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()
