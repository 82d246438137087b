"""Originals: kept before the first change, given back byte for byte, and files that are old or new, never half."""

import errno
import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.host.change import files
from agents.host.change.files import Owner
from agents.host.change.journal import FOLDER, Journal
from agents.host.change.plan import Change, change, private_change
from agents.host.change.restore import Restored, restore
from agents.host.commands import Deadline, Tools
from agents.host.errors import HostError
from agents.host.root import Root
from testbed.stacks import ROOT

_ACCESS_LIST = "system.posix_acl_access"
_OWNER = Owner(0o640, os.geteuid(), os.getegid())


def _changes(root: Root, *paths: str, after: bytes = b"new") -> list[tuple[str, Change]]:
    return [("a", planned) for path in paths for planned in change(root, path, after)]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "etc").mkdir()
    (tmp_path / "var" / "lib").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "etc" / "kept").write_bytes(b"\x00original\n")
    (tmp_path / "etc" / "kept").chmod(0o640)
    return Root(str(tmp_path))


def test_the_first_original_stays_the_original(root: Root) -> None:
    first = Journal.load(root)
    first.begin(_changes(root, "/etc/kept", after=b"one"), [])
    files.replace(root.path("/etc/kept"), b"one", _OWNER)
    second = Journal.load(root)
    second.begin(_changes(root, "/etc/kept", "/etc/new/file"), ["containerd"])
    third = Journal.load(root)
    assert third.content_of(third.originals["/etc/kept"]) == b"\x00original\n"
    assert third.originals["/etc/kept"].owner == _OWNER
    assert third.content_of(third.originals["/etc/new/file"]) is None
    assert third.pending == ["containerd"]
    assert third.folders.index("/etc/new") >= 0


def test_what_was_written_is_known_until_the_next_is_in_its_place(root: Root) -> None:
    Journal.load(root).begin(_changes(root, "/etc/kept", after=b"one"), [])
    original = Journal.load(root).originals["/etc/kept"]
    assert Journal.load(root).is_as_written(original, b"one")
    assert not Journal.load(root).is_as_written(original, b"\x00original\n")
    root.path("/etc/kept").write_bytes(b"one")
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/kept", after=b"two"), [])
    original = journal.originals["/etc/kept"]
    assert [journal.is_as_written(original, content) for content in (b"one", b"two")] == [True, True]
    assert journal.written_to(original) == b"two"
    assert journal.content_of(original) == b"\x00original\n"
    root.path("/etc/kept").write_bytes(b"two")
    journal.begin(_changes(root, "/etc/kept", after=b"three"), [])
    assert not journal.is_as_written(journal.originals["/etc/kept"], b"one")


def test_what_is_forgotten_is_in_no_journal_any_more(root: Root) -> None:
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/kept", "/etc/other"), [])
    journal.forget([journal.originals["/etc/kept"]])
    assert set(Journal.load(root).originals) == {"/etc/other"}


def test_a_journal_of_the_version_before_is_read_and_one_of_a_later_version_is_refused(root: Root) -> None:
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/kept"), ["containerd"])
    path = root.path(f"{FOLDER}/journal.json")
    written = json.loads(path.read_text(encoding="utf-8"))
    for item in written["files"]:
        del item["written"], item["target"]
    path.write_text(json.dumps(written | {"version": 1}), encoding="utf-8")
    old = Journal.load(root)
    original = old.originals["/etc/kept"]
    assert old.content_of(original) == b"\x00original\n"
    assert (original.owner, original.written, old.pending) == (_OWNER, (), ["containerd"])
    assert old.written_to(original) is None
    assert not old.is_as_written(original, b"new")
    path.write_text(json.dumps(written | {"version": 3}), encoding="utf-8")
    with pytest.raises(HostError, match="of version 3, which this agent does not know"):
        Journal.load(root)


def test_originals_are_readable_by_their_owner_alone(root: Root) -> None:
    Journal.load(root).begin(_changes(root, "/etc/kept"), [])
    for path in root.path(FOLDER).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_closing_leaves_nothing_but_what_others_put_there(root: Root) -> None:
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/new/file", "/etc/shared/file"), [])
    for folder in ("new", "shared"):
        files.make_folders(root.path(f"/etc/{folder}"))
    (root.path("/etc/shared") / "theirs").touch()
    journal.close()
    assert not root.exists("/var/lib/kai-anywhere")
    assert not root.exists("/etc/new")
    assert root.exists("/etc/shared/theirs")


def test_a_damaged_journal_and_a_damaged_original_are_errors_that_say_where_the_originals_are(root: Root) -> None:
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/kept"), [])
    for kept in root.path(f"{FOLDER}/originals").iterdir():
        kept.write_bytes(b"other")
    with pytest.raises(HostError, match="damaged"):
        journal.content_of(journal.originals["/etc/kept"])
    root.path(f"{FOLDER}/journal.json").write_bytes(b'{"files": [')
    with pytest.raises(HostError) as caught:
        Journal.load(root)
    assert f"{FOLDER}/originals" in caught.value.remedy


def test_a_replaced_file_keeps_mode_and_a_link_stays_a_link(root: Root) -> None:
    root.path("/etc/link").symlink_to("kept")
    (planned,) = change(root, "/etc/link", b"new")
    files.replace(root.target("/etc/link"), b"new", planned.owner)
    assert root.path("/etc/link").is_symlink()
    assert root.path("/etc/kept").read_bytes() == b"new"
    assert stat.S_IMODE(root.path("/etc/kept").stat().st_mode) == 0o640


def test_a_file_with_an_access_list_keeps_it_so_that_its_group_gets_no_right_more(root: Root) -> None:
    path = root.path("/etc/kept")
    # acl(5): the owner rw, user 65534 r, the group nothing, the mask r, others nothing.
    entries = ((1, 6, 2**32 - 1), (2, 4, 65534), (4, 0, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1))
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, _ACCESS_LIST, access)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error}")
    (planned,) = change(root, "/etc/kept", b"new")
    files.replace(path, b"new", planned.owner)
    assert (path.read_bytes(), os.getxattr(path, _ACCESS_LIST)) == (b"new", access)
    files.replace(path, b"secret", Owner(0o600, os.geteuid(), os.getegid()))
    assert _ACCESS_LIST not in os.listxattr(path), "what is made private is for nobody else"


def test_a_file_keeps_what_somebody_noted_in_its_extended_attributes(root: Root) -> None:
    path = root.path("/etc/kept")
    try:
        os.setxattr(path, "user.origin", b"the site's own tool")
    except OSError as error:
        pytest.skip(f"this file system has no such attributes: {error}")
    (planned,) = change(root, "/etc/kept", b"new")
    files.replace(path, b"new", planned.owner)
    assert (path.read_bytes(), os.getxattr(path, "user.origin")) == (b"new", b"the site's own tool")


def test_a_folder_that_is_made_has_its_mode_whatever_the_umask_and_one_that_is_there_keeps_its_own(root: Root) -> None:
    there = root.path("/etc/theirs")
    there.mkdir()
    there.chmod(0o750)
    before = os.umask(0o077)
    try:
        files.make_folders(there / "new" / "newer")
        files.make_folders(there)
    finally:
        os.umask(before)
    folders = (there, there / "new", there / "new" / "newer")
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o750, 0o755, 0o755]


def test_a_link_out_of_the_tree_is_refused(root: Root, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_text("theirs")
    root.path("/etc/link").symlink_to(outside)
    with pytest.raises(HostError, match="leads out of"):
        root.target("/etc/link")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_replaced(make: Callable[[Path], None], root: Root) -> None:
    make(root.path("/etc/other"))
    root.path("/etc/link").symlink_to("other")
    for path in ("/etc/other", "/etc/link"):
        with pytest.raises(HostError, match="which is no file"):
            root.target(path)


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(root: Root) -> None:
    script = (
        "import resource, sys; from pathlib import Path; from agents.host.change import files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: files.replace(Path(sys.argv[1]), b'x' * 1000, files.Owner(0o640, 0, 0))\n"
        "except files.HostError as error: print(error.message)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root.path("/etc/kept"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "File too large" in done.stdout
    assert "It is what it was" in done.stdout
    assert root.path("/etc/kept").read_bytes() == b"\x00original\n"
    assert [path.name for path in root.path("/etc").iterdir()] == ["kept"]


def test_what_root_itself_may_not_replace_is_looked_at_for_immutability(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `chattr +i` has it; "run as root" helps nobody who is."""

    def refused(_self: Path, _target: Path) -> Path:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "replace", refused)
    for user, remedy in ((0, "`lsattr -d"), (1000, "run as root")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(HostError, match="Operation not permitted") as caught:
            files.replace(root.path("/etc/kept"), b"new", _OWNER)
        assert remedy in caught.value.remedy
    assert [path.name for path in root.path("/etc").iterdir()] == ["kept"]


def test_what_a_killed_run_left_is_overwritten(root: Root) -> None:
    path = root.path("/etc/kept")
    files.temporary_of(path).write_bytes(b"half of")
    files.replace(path, b"whole", _OWNER)
    assert path.read_bytes() == b"whole"
    assert not files.temporary_of(path).exists()
    assert not files.temporary_of(path).name.endswith(".toml"), "containerd would import it"


def test_a_diff_masks_what_looks_secret() -> None:
    before = b'keep = 1\npassword = "hunter2"\nproxy = "http://me:hunter3@proxy"\n'
    after = b'keep = 2\n"auth": "hunter4",\nproxy = "http://me:hunter3@proxy"\n'
    diff = Change("/etc/x", before, after, _OWNER).diff
    assert "-keep = 1" in diff
    assert "+keep = 2" in diff
    assert "hunter" not in diff
    assert "proxy" in diff


def test_of_a_file_for_its_owner_alone_a_diff_shows_the_keys(root: Root) -> None:
    """A registry's header may have any name: `X-JFrog-Art-Api` holds Artifactory's key."""
    text = (
        'version = 2\n\n[plugins."cri".registry.headers]\n  X-JFrog-Art-Api = ["AKCp8hunter2"]\n'
        '  more = [\n    "hunter2",\n  ]\n# hunter2\n{"debug": "hunter2"}\n'
    )
    root.path("/etc/kept").chmod(0o600)
    for planned in (
        *change(root, "/etc/kept", text.encode()),
        *private_change(root, "/etc/new", text.encode()),
        Change("/etc/kept", text.encode(), None, Owner(0o600, 0, 0), hidden=True),
    ):
        assert "hunter2" not in planned.diff
        assert "version = ***" in planned.diff
        assert '[plugins."cri".registry.headers]' in planned.diff
        assert "X-JFrog-Art-Api = ***" in planned.diff


def test_a_diff_masks_what_looks_secret_within_a_line_too() -> None:
    before = b'{"debug":true,"log-opts":{"splunk-token":"hunter2"}}\n'
    after = b'login = { username = "me", password = "hunter3" }\nprivate_key = "hunter5"\n'
    after += b'proxy = "http://me:hunter4@x@proxy"\n'
    diff = Change("/etc/x", before, after, _OWNER).diff
    assert '-{"debug":true,"log-opts":{"splunk-token":***' in diff
    assert '+login = { username = "me", password = ***' in diff
    assert '+proxy = "http://***@proxy"' in diff
    assert "hunter" not in diff


def test_a_host_is_the_stacks_that_configured_it_last_and_only_that_one_restores_it(root: Root) -> None:
    def restored(stack: str | None) -> Restored:
        done = Restored()
        restore(Tools(root, Deadline(60.0)), done, stack=stack)
        return done

    journal = Journal.load(root)
    journal.belong_to("kai-anywhere/rack-1")
    assert not root.path(FOLDER).exists(), "a host on which nothing was changed has no journal"
    journal.begin(_changes(root, "/etc/kept", after=b"ours"), [])
    files.replace(root.path("/etc/kept"), b"ours", _OWNER)
    for stack in ("kai-anywhere/rack-1", "kai-anywhere/rack-2", None):
        Journal.load(root).belong_to(stack)
    assert Journal.load(root).stack == "kai-anywhere/rack-2", "who says nothing takes nothing over"
    assert restored("kai-anywhere/rack-1").left_to == "kai-anywhere/rack-2"
    assert root.path("/etc/kept").read_bytes() == b"ours"
    assert restored("kai-anywhere/rack-2").left_to is None
    assert root.path("/etc/kept").read_bytes() == b"\x00original\n"


@pytest.mark.parametrize("asks", ["kai-anywhere/rack-1", None])
def test_a_host_of_an_earlier_version_and_a_person_at_the_host_are_not_asked_for_a_stack(
    root: Root, asks: str | None
) -> None:
    journal = Journal.load(root)
    journal.begin(_changes(root, "/etc/kept", after=b"ours"), [])
    files.replace(root.path("/etc/kept"), b"ours", _OWNER)
    if asks is None:
        journal.belong_to("kai-anywhere/rack-2")
    restore(Tools(root, Deadline(60.0)), Restored(), stack=asks)
    assert root.path("/etc/kept").read_bytes() == b"\x00original\n"
