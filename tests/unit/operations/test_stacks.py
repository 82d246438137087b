"""Which stacks there are, and which ones a change may concern: with a real repository of git."""

import json
import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from operations.__main__ import app
from operations.errors import OperationError
from operations.stacks import concerned, listed

NAMES = ["edge", "prod", "test.eu"]
IDENTITY = {
    f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "n"), ("EMAIL", "e@x"))
}


def _git(folder: Path, *arguments: str) -> str:
    environment = dict(os.environ) | IDENTITY | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three stacks in a folder of a repository, committed."""
    folder = tmp_path / "clusters"
    folder.mkdir()
    for name in NAMES:
        (folder / f"Pulumi.{name}.yaml").write_text("config: {}\n", encoding="utf-8")
    _git(tmp_path, "init", "--quiet")
    _commit(tmp_path)
    return tmp_path


def _commit(repository: Path) -> str:
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--allow-empty", "--message", "change")
    return _git(repository, "rev-parse", "HEAD")


def _listed(repository: Path, base: str = "") -> tuple[list[str], str]:
    """What the command prints, and what it says beside it."""
    done = CliRunner().invoke(app, ["stacks", "--folder", str(repository / "clusters"), "--base", base])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


def test_every_stack_with_a_file_is_listed(repository: Path) -> None:
    (repository / "clusters" / "Pulumi.yaml").write_text("name: x", encoding="utf-8")
    (repository / "clusters" / "Pulumi.link.yaml").symlink_to("/etc/hostname")
    assert _listed(repository) == (NAMES, "")


def test_a_change_of_one_stacks_file_concerns_it_alone(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / "clusters" / "Pulumi.prod.yaml").write_text("config: {a: 1}\n", encoding="utf-8")
    _commit(repository)
    assert _listed(repository, base) == (["prod"], "")


def test_a_new_stack_is_concerned_and_a_removed_one_is_nobodys(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / "clusters" / "Pulumi.new.yaml").write_text("config: {}\n", encoding="utf-8")
    (repository / "clusters" / "Pulumi.edge.yaml").unlink()
    _commit(repository)
    assert _listed(repository, base) == (["new"], "")


def test_nothing_changed_concerns_nobody(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    _commit(repository)
    assert _listed(repository, base) == ([], "")


@pytest.mark.parametrize(
    "file",
    [
        ".github/workflows/preview.yml",
        "clusters/charts/kai.tgz",
        "clusters/Pulumi.yaml",
        "Pulumi.prod.yaml",
        "clusters/inner/Pulumi.prod.yaml",
        "a line\nbreak",
    ],
)
def test_everything_else_concerns_every_stack(repository: Path, file: str) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / file).parent.mkdir(parents=True, exist_ok=True)
    (repository / file).write_text("x", encoding="utf-8")
    _commit(repository)
    assert _listed(repository, base) == (NAMES, "")


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("0" * 40, f"git has no commit {'0' * 40} here, so every stack is taken.\n"),
        ("main", "'main' is no whole commit, so every stack is taken.\n"),
        ("--output=x", "'--output=x' is no whole commit, so every stack is taken.\n"),
    ],
)
def test_a_base_that_git_can_t_tell_of_means_every_stack(repository: Path, base: str, why: str) -> None:
    done = CliRunner().invoke(app, ["stacks", "--folder", str(repository / "clusters"), f"--base={base}"])
    assert (json.loads(done.stdout), done.stderr) == (NAMES, why)


def test_outside_of_a_repository_every_stack_is_taken(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "Pulumi.prod.yaml").touch()
    names, why = _listed(tmp_path, "0" * 40)
    assert names == ["prod"]
    assert "so every stack is taken" in why


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(["README.md", "/Makefile", "inner/Pulumi.prod.yaml"])))
def test_a_stack_is_left_out_only_where_nothing_but_other_stacks_files_changed(own: set[str], others: set[str]) -> None:
    changed = {PurePosixPath(f"Pulumi.{name}.yaml") for name in own} | {PurePosixPath(each) for each in others}
    assert set(concerned(NAMES, changed)) == (set(NAMES) if others else own)
    assert concerned(NAMES, None) == NAMES


def test_a_folder_without_stacks_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"There is no file Pulumi\.<stack>\.yaml in .*Give the folder"):
        listed(tmp_path)


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 101, "ä", "$(id)"])
def test_a_file_whose_name_is_none_of_a_stack_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(OperationError, match="is no stack name"):
        listed(tmp_path)
