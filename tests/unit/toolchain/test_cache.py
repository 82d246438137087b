"""The cache folder: whole entries, locks, leftovers."""

import errno
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from toolchain import ToolchainError, cache, path_lookup


def _program(folder: Path, name: str = "tool", content: str = "#!/bin/sh\n") -> None:
    (folder / name).write_text(content)
    (folder / name).chmod(0o755)


def test_a_user_without_a_home_hears_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "PULUMI_HOME", "XDG_CACHE_HOME", cache.LOCATION_VARIABLE):
        monkeypatch.delenv(name, raising=False)

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert not path_lookup.plugin_folder().exists()
    with pytest.raises(ToolchainError, match="HOME is not set"):
        cache.location()


def test_an_entry_is_filled_once_and_then_reused(cache_root: Path) -> None:
    fills: list[Path] = []

    def fill(into: Path) -> None:
        fills.append(into)
        _program(into)

    first = cache.obtain("tool-1", ["tool"], what="tool 1", fill=fill)
    assert cache.obtain("tool-1", ["tool"], what="tool 1", fill=fill) == first == cache_root / "tool-1"
    assert len(fills) == 1
    assert cache.find("tool-1", ["tool"]) == first
    assert cache.find("tool-1", ["tool", "other"]) is None


def test_a_failed_fill_leaves_nothing(cache_root: Path) -> None:
    def fill(into: Path) -> None:
        _program(into)
        raise ToolchainError("no", why="because", remedy="do")

    with pytest.raises(ToolchainError, match="because"):
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=fill)
    assert [path.name for path in cache_root.iterdir()] == ["tool-1.lock"]


def test_a_damaged_entry_is_made_anew(cache_root: Path) -> None:
    cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    (cache_root / "tool-1" / "tool").unlink()
    assert cache.find("tool-1", ["tool"]) is None
    folder = cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    assert os.access(folder / "tool", os.X_OK)


def test_an_entry_whose_files_a_power_cut_emptied_is_made_anew(cache_root: Path) -> None:
    cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    os.truncate(cache_root / "tool-1" / "tool", 0)
    folder = cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    assert (folder / "tool").read_text() == "#!/bin/sh\n"


def test_what_is_there_is_used_without_a_lock_as_a_read_only_folder_has_none(cache_root: Path) -> None:
    folder = cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    # Root may write everywhere: a folder in the lock's place stops root too.
    (cache_root / "tool-1.lock").unlink()
    (cache_root / "tool-1.lock").mkdir()
    assert cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program) == folder


def test_leftovers_under_a_lock_that_can_not_be_taken_stay_and_stop_nobody(cache_root: Path) -> None:
    (cache_root / "theirs-1.partial-a").mkdir(parents=True)
    (cache_root / "theirs-1.lock").mkdir()
    folder = cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    assert folder == cache_root / "tool-1"
    assert (cache_root / "theirs-1.partial-a").exists()


def test_leftovers_of_killed_runs_are_removed_and_those_of_running_ones_are_not(cache_root: Path) -> None:
    for name in ("tool-1.partial-a", "other-2.partial-b", "busy-3.partial-c"):
        (cache_root / name / "half").mkdir(parents=True)
    with FileLock(cache_root / "busy-3.lock"):
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    assert {path.name for path in cache_root.iterdir() if path.suffix != ".lock"} == {"tool-1", "busy-3.partial-c"}


def test_the_second_of_two_waits_says_so_and_reuses(cache_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filling, go_on = threading.Event(), threading.Event()
    fills: list[str] = []

    def slow(into: Path) -> None:
        fills.append("first")
        filling.set()
        assert go_on.wait(10)
        _program(into)

    def second(into: Path) -> None:
        fills.append("second")
        _program(into)

    first = threading.Thread(target=lambda: cache.obtain("tool-1", ["tool"], what="tool 1", fill=slow))
    first.start()
    assert filling.wait(10)
    threading.Timer(0.3, go_on.set).start()
    assert cache.obtain("tool-1", ["tool"], what="tool 1", fill=second) == cache_root / "tool-1"
    first.join()
    assert fills == ["first"]
    assert capsys.readouterr().err == "waiting for tool 1: another run is getting it\n"


def test_a_cache_folder_that_can_not_be_written_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(cache.LOCATION_VARIABLE, str(tmp_path / "file" / "below"))
    with pytest.raises(ToolchainError) as caught:
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=_program)
    assert str(tmp_path / "file" / "below" / "toolchain") in str(caught.value)
    assert "export KAI_ANYWHERE_CACHE=" in str(caught.value)


def test_a_quota_that_is_used_up_is_told_as_a_full_disk(cache_root: Path) -> None:
    def fill(_into: Path) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with pytest.raises(ToolchainError, match=r"not enough disk space at (.|\n)*quota exceeded"):
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=fill)
    assert [path.name for path in cache_root.iterdir()] == ["tool-1.lock"]


@pytest.mark.skipif(not hasattr(os, "ST_NOEXEC"), reason="the system does not tell it")
def test_a_folder_that_runs_no_programs_is_told_before_anything_is_built(
    cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(ToolchainError, match="mounted with noexec") as caught:
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=lambda _: pytest.fail("it was built"))
    assert "choose another: export KAI_ANYWHERE_CACHE=" in str(caught.value)
    assert list(cache_root.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_named_and_leaves_nothing(cache_root: Path) -> None:
    def fill(into: Path) -> None:
        _program(into)
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(ToolchainError, match="not enough disk space"):
        cache.obtain("tool-1", ["tool"], what="tool 1", fill=fill)
    assert [path.name for path in cache_root.iterdir()] == ["tool-1.lock"]
