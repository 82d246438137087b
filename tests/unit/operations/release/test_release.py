"""The files of a release, and what `--version` says."""

import hashlib
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations import version as version_module
from operations.__main__ import app
from operations.errors import OperationError
from operations.release import commands as release_module
from operations.release.commands import notes_of
from operations.version import commit, programs_text, project_version
from package.version import VERSION
from testbed.stacks import ROOT
from tests.support.full_disk import room_for
from toolchain.install import Located, Origin
from toolchain.programs import ALL, HELM, PULUMI

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Not yet.

## [1.2.3] - 2026-11-23

### Added

- [A command](docs/commands.md) and [Keep a Changelog](https://keepachangelog.com/).

## [1.2.2] - 2026-10-01

- Old.

[1.2.3]: https://example.com
"""


def test_the_notes_are_what_the_changelog_says_of_the_version() -> None:
    assert notes_of(CHANGELOG, "v1.2.3") == (
        "### Added\n\n- A command and [Keep a Changelog](https://keepachangelog.com/).\n"
    )
    assert notes_of(CHANGELOG, "v1.2.2") == "- Old.\n"


def test_what_is_unreleased_today_makes_notes_once_it_has_a_number() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changelog.count("## [Unreleased]\n") == 1
    released = changelog.replace("## [Unreleased]\n", "## [Unreleased]\n\n## [9.9.9] - 2027-01-31\n")
    # Right after a release nothing is unreleased.
    nothing_new = re.search(r"## \[Unreleased\]\n\s*(## |\Z)", changelog) is not None
    notes = notes_of(released, f"v{project_version()}" if nothing_new else "v9.9.9")
    assert notes.startswith("### ")
    assert "](docs/" not in notes, "a relative link leads nowhere on the page of a release"
    with pytest.raises(OperationError, match=r"CHANGELOG\.md has nothing under '## \[9\.9\.9\]'"):
        notes_of(changelog, "v9.9.9")


@pytest.mark.parametrize("version", ["v1.2.4", "v1.2", "v11.2.3"])
def test_a_version_that_the_changelog_does_not_have_is_an_error(version: str) -> None:
    with pytest.raises(OperationError, match=r"CHANGELOG\.md has nothing under '## \["):
        notes_of(CHANGELOG, version)


def test_a_release_has_archive_schemas_checksums_and_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "notes_of", lambda _, version: f"of {version}\n")
    monkeypatch.setattr(release_module, "commit", lambda: "0123456789ab")
    tag, out = f"v{project_version()}", tmp_path / "dist"
    done = CliRunner().invoke(app, ["release", "--version", tag, "--out", str(out)])
    assert done.exit_code == 0, done.output
    archive = f"kai-anywhere-{tag}.tar.gz"
    bills = {"kai-anywhere.cdx.json", "agents.cdx.json", "metrics.cdx.json"}
    schemas = {"stack.schema.json", "part.schema.json"}
    published = {archive, *schemas, *bills}
    assert {file.name for file in out.iterdir()} == {*published, "SHA256SUMS", "notes.md"}
    with tarfile.open(out / archive) as opened:
        names = opened.getnames()
    assert f"kai-anywhere-{tag}/agents/Containerfile" in names
    assert not any(".git/" in name or ".venv" in name for name in names)
    for schema in schemas:
        assert (out / schema).read_bytes() == (ROOT / "config" / schema).read_bytes()
    lines = (out / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert {line.split("  ")[1] for line in lines} == published
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert (out / "notes.md").read_text(encoding="utf-8") == f"of {tag}\n"


@pytest.mark.parametrize("room", [1000, 100_000])
def test_a_full_disk_leaves_no_file_of_a_release(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of them would be published for all: the archive that git did not end, or none but checksums."""
    monkeypatch.setattr(release_module, "notes_of", lambda *_: "notes\n")
    monkeypatch.setattr(release_module, "commit", lambda: "0123456789ab")
    # Longer than the others, it would be the one that finds no room each time.
    monkeypatch.setattr(release_module, "_archive", lambda file, **_: file.touch())
    with room_for(room):
        done = CliRunner().invoke(app, ["release", "--version", f"v{project_version()}", "--out", str(tmp_path)])
    assert isinstance(done.exception, OperationError), done.output
    assert str(done.exception).startswith(f"The files can't be written into {tmp_path}: File too large. Make room")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("1.2.3", "'1.2.3' is no version"),
        ("--force", "is no version"),
        ("v999.0.0", "is not the version of this checkout"),
    ],
)
def test_a_tag_that_does_not_fit_makes_nothing(tag: str, problem: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["release", f"--version={tag}", "--out", str(tmp_path / "dist")])
    assert isinstance(done.exception, OperationError)
    assert problem in str(done.exception)
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize("revision", ["0123456789ab-dirty", ""])
def test_files_that_are_not_those_of_the_commit_make_no_release(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "notes_of", lambda _, version: f"of {version}\n")
    monkeypatch.setattr(release_module, "commit", lambda: revision)
    done = CliRunner().invoke(app, ["release", "--version", f"v{project_version()}", "--out", str(tmp_path / "dist")])
    assert isinstance(done.exception, OperationError)
    assert "files here differ from it" in str(done.exception)
    assert not (tmp_path / "dist").exists()


def test_the_project_has_one_version() -> None:
    assert project_version() == VERSION


def test_each_program_is_told_with_its_version_and_origin() -> None:
    located = {
        PULUMI: Located(Path("/usr/bin/pulumi"), "3.259.0", Origin.PATH),
        HELM: Located(Path("/cache/helm"), None, Origin.BUILT),
    }
    lines = {line.split()[0]: line.split() for line in programs_text(located).splitlines() if line.split()}
    assert lines["pulumi"] == ["pulumi", "3.259.0", "PATH", "/usr/bin/pulumi"]
    assert lines["helm"] == ["helm", "unknown", "built", "/cache/helm"]
    assert lines["crane"][1:4] == ["-", "-", "not"]
    assert {program.name for program in ALL} <= lines.keys()


def test_the_version_is_said_without_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_module, "programs_text", lambda _: "programs")
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"kai-anywhere {project_version()}")
    assert f"in {ROOT}\n\nprograms\n" in done.stdout


def test_an_unpacked_archive_has_no_commit_though_it_lies_in_a_repository_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "theirs"]):
        person = ["-c", "user.name=them", "-c", "user.email=them@example.com"]
        subprocess.run(["git", "-C", str(tmp_path), *person, *words], check=True)
    (tmp_path / "kai-anywhere").mkdir()
    monkeypatch.setattr(version_module, "ROOT", tmp_path / "kai-anywhere")
    assert commit() == ""
    monkeypatch.setattr(version_module, "ROOT", tmp_path)
    assert commit()
