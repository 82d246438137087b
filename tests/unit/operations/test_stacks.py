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
from operations.stacks import concerned, listed, seen_from

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
    assert _listed(repository) == (NAMES, "")


@pytest.mark.parametrize("leads_to", ["Pulumi.prod.yaml", "/etc/hostname", "nowhere"])
def test_a_stacks_file_that_is_a_link_is_refused_since_pulumi_would_follow_it(repository: Path, leads_to: str) -> None:
    link = repository / "clusters" / "Pulumi.link.yaml"
    link.symlink_to(leads_to)
    with pytest.raises(OperationError) as refused:
        listed(repository / "clusters")
    assert str(refused.value) == (
        f"{link} is a symbolic link: pulumi would follow it, and no policy and no preview does. Put a copy of what it "
        "leads to in its place; what stacks share can stand in a base."
    )


@pytest.mark.parametrize(("key", "value"), [("stackConfigDir", "hidden"), ("config", "hidden"), ("stackConfigDir", "")])
def test_a_project_whose_stack_files_are_elsewhere_is_refused(repository: Path, key: str, value: str) -> None:
    project = repository / "clusters" / "Pulumi.yaml"
    project.write_text(json.dumps({"name": "x", "runtime": "yaml", key: value}), encoding="utf-8")
    with pytest.raises(OperationError) as refused:
        listed(repository / "clusters")
    assert str(refused.value) == (
        f"{project} says `{key}: {value}`: pulumi would read stack files there that no preview's list and no policy "
        "has read. Remove the line, and keep the files Pulumi.<stack>.yaml beside Pulumi.yaml."
    )


def test_a_projects_own_configuration_is_no_folder(repository: Path) -> None:
    project = repository / "clusters" / "Pulumi.yaml"
    said = "{kai-anywhere:other: {value: a}, aws:region: eu, base: {value: a}, kai-anywhere:settings: {type: object}}"
    project.write_text(f"name: x\nruntime: yaml\nconfig: {said}\n", encoding="utf-8")
    assert listed(repository / "clusters") == NAMES


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("kai-anywhere", "kai-anywhere:base", "bases/jetson.yaml"),
        ("kai-anywhere", "base", {"value": "bases/jetson.yaml"}),
        ("fleet", "kai-anywhere:base", {"type": "string", "default": "bases/jetson.yaml"}),
        ("kai-anywhere", "settings", {"type": "object", "value": {}}),
    ],
)
def test_what_a_project_says_for_every_stack_is_refused_since_no_check_reads_it(
    repository: Path, name: str, key: str, said: object
) -> None:
    project = repository / "clusters" / "Pulumi.yaml"
    project.write_text(json.dumps({"name": name, "runtime": "yaml", "config": {key: said}}), encoding="utf-8")
    with pytest.raises(OperationError, match=f"gives `{key}` a value for every stack, which pulumi takes"):
        listed(repository / "clusters")


def test_a_second_project_as_json_is_refused_since_pulumi_prefers_it(repository: Path) -> None:
    folder = repository / "clusters"
    (folder / "Pulumi.yaml").write_text("name: x\nruntime: yaml\n", encoding="utf-8")
    (folder / "Pulumi.json").write_text('{"name": "x", "runtime": "yaml"}', encoding="utf-8")
    with pytest.raises(OperationError, match=r"Pulumi\.json stands beside Pulumi\.yaml: pulumi would read stack files"):
        listed(folder)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["Pulumi.yml", "Pulumi.rome.yml"], "Pulumi.yml, Pulumi.rome.yml"),
        (["Pulumi.yml"], "Pulumi.yml"),
        (["Pulumi.yaml", "Pulumi.rome.yml"], "Pulumi.rome.yml"),
    ],
)
def test_files_that_end_in_yml_are_refused_since_pulumi_reads_those_of_one_ending(
    repository: Path, files: list[str], named: str
) -> None:
    folder = repository / "clusters"
    for file in files:
        (folder / file).write_text("name: x\n", encoding="utf-8")
    with pytest.raises(OperationError) as refused:
        listed(folder)
    assert str(refused.value) == (
        f"{folder} has {named}: nothing here reads files that end in .yml. Let the project's file and those of all its "
        "stacks end in .yaml; pulumi reads those of one ending only."
    )


def test_files_that_pulumi_passes_over_are_nothing_to_speak_of(repository: Path) -> None:
    for file in ("Pulumi.yaml", "Pulumi.yml", "Pulumi.prod.yml"):
        (repository / "clusters" / file).write_text("name: x\n", encoding="utf-8")
    assert listed(repository / "clusters") == NAMES


@pytest.mark.parametrize("content", [b"a: [", b"\xff"])
def test_a_project_that_can_t_be_read_is_named(repository: Path, content: bytes) -> None:
    (repository / "clusters" / "Pulumi.yaml").write_bytes(content)
    with pytest.raises(OperationError, match=r"Pulumi\.yaml is not YAML"):
        listed(repository / "clusters")


@pytest.mark.parametrize("name", ["prod-rollout", "prod-Rollout"])
def test_a_stack_that_would_take_the_credentials_of_another_ones_rollout_is_refused(tmp_path: Path, name: str) -> None:
    for stack_name in ("prod", name):
        (tmp_path / f"Pulumi.{stack_name}.yaml").write_text("config: {}\n", encoding="utf-8")
    with pytest.raises(OperationError) as refused:
        listed(tmp_path)
    assert str(refused.value) == (
        f"The stack '{name}' can't end in '-rollout': previews of it would get the environment '{name}', which has the "
        "credentials to update the stack 'prod'. Rename its file."
    )


def test_two_stacks_that_would_have_one_environment_are_refused(tmp_path: Path) -> None:
    for name in ("Berlin", "berlin", "paris"):
        (tmp_path / f"Pulumi.{name}.yaml").write_text("config: {}\n", encoding="utf-8")
    with pytest.raises(OperationError) as refused:
        listed(tmp_path)
    assert str(refused.value) == (
        "The stacks 'Berlin' and 'berlin' differ in capitals alone: GitHub takes the environments of both for one, so "
        "one would be updated with the credentials of the other. Rename one of them: pulumi stack rename, and its file."
    )


def test_a_stack_that_only_begins_like_a_rollout_is_listed(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.rollout-1.yaml").write_text("config: {}\n", encoding="utf-8")
    assert listed(tmp_path) == ["rollout-1"]


def test_a_change_of_one_stacks_file_concerns_it_alone(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / "clusters" / "Pulumi.prod.yaml").write_text("config: {a: 1}\n", encoding="utf-8")
    _commit(repository)
    assert _listed(repository, base) == (["prod"], "")


def _write(repository: Path, file: str, text: str) -> None:
    path = repository / "clusters" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _site(repository: Path, name: str, base: str, own: str = "{}") -> None:
    text = f"config:\n  kai-anywhere:base: bases/{base}.yaml\n  kai-anywhere:settings: {own}\n"
    _write(repository, f"Pulumi.{name}.yaml", text)


@pytest.fixture
def fleet(repository: Path) -> tuple[Path, str]:
    """Two sites on one base, which builds upon another that a third one has alone; and the commit."""
    _write(repository, "bases/all.yaml", "config:\n  kai-anywhere:settings: {a: 1, b: 1}\n")
    inner = "config:\n  kai-anywhere:base: bases/all.yaml\n  kai-anywhere:settings: {c: 1}\n"
    _write(repository, "bases/edge.yaml", inner)
    _site(repository, "edge", "edge")
    _site(repository, "test.eu", "edge", "{a: 2}")
    _site(repository, "prod", "all")
    return repository, _commit(repository)


@pytest.mark.parametrize(
    ("file", "text", "stacks"),
    [
        ("bases/all.yaml", "config:\n  kai-anywhere:settings: {a: 1, b: 2}\n", ["edge", "prod", "test.eu"]),
        ("bases/all.yaml", "config:\n  kai-anywhere:settings: {a: 3, b: 1}\n", ["edge", "prod"]),
        ("bases/all.yaml", "# The same.\nconfig: {kai-anywhere:settings: {b: 1, a: 1}}\n", []),
        # Python takes them for equal, and a setting that takes a number refuses true.
        ("bases/all.yaml", "config:\n  kai-anywhere:settings: {a: 1, b: true}\n", ["edge", "prod", "test.eu"]),
        ("bases/all.yaml", "config:\n  kai-anywhere:settings: {a: 1.0, b: 1}\n", []),
        ("bases/edge.yaml", "config:\n  kai-anywhere:settings: {a: 1, b: 1, c: 1}\n", []),
        ("bases/edge.yaml", "config: [\n", ["edge", "test.eu"]),
        ("bases/new.yaml", "config:\n  kai-anywhere:settings: {}\n", []),
        ("fleet.yaml", "canary: edge\n", []),
        ("Pulumi.prod.yaml", "config: {kai-anywhere:settings: {a: 1, b: 1}}\n", []),
        ("Pulumi.prod.yaml", "config: {kai-anywhere:settings: {a: 1, b: [1]}}\n", ["prod"]),
        ("Pulumi.prod.yaml", "encryptionsalt: x\nconfig: {kai-anywhere:settings: {a: 1, b: 1}}\n", ["prod"]),
        ("bases/notes.md", "notes", NAMES),
    ],
)
def test_a_changed_base_concerns_the_sites_whose_settings_differ(
    fleet: tuple[Path, str], file: str, text: str, stacks: list[str]
) -> None:
    repository, base = fleet
    _write(repository, file, text)
    _commit(repository)
    assert _listed(repository, base) == (stacks, "")


def test_a_base_that_goes_away_concerns_those_that_had_it(fleet: tuple[Path, str]) -> None:
    repository, base = fleet
    (repository / "clusters" / "bases" / "edge.yaml").unlink()
    _commit(repository)
    assert _listed(repository, base) == (["edge", "test.eu"], "")


def test_a_base_that_was_a_link_concerns_those_that_have_it(fleet: tuple[Path, str]) -> None:
    repository, _ = fleet
    link = repository / "clusters" / "bases" / "edge.yaml"
    text = link.read_text(encoding="utf-8")
    link.unlink()
    link.symlink_to("all.yaml")
    base = _commit(repository)
    link.unlink()
    link.write_text(text, encoding="utf-8")
    _commit(repository)
    assert _listed(repository, base) == (["edge", "test.eu"], "")


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


def test_this_folder_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["stacks"], ["fleet", "plan", "--folder", "."]):
        refusal = str(CliRunner().invoke(app, command).exception)
        assert f" in {tmp_path}." in refusal, "`in ..` would be another folder"


def test_outside_of_a_repository_every_stack_is_taken(tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "Pulumi.prod.yaml").touch()
    names, why = _listed(tmp_path, "0" * 40)
    assert names == ["prod"]
    assert "so every stack is taken" in why


def test_a_checkout_of_another_user_is_told_in_gits_words(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    # Whoever runs this may have allowed it.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    names, why = _listed(repository, base)
    assert names == NAMES
    assert why.startswith("git can't be asked here (fatal: detected dubious ownership in repository at ")


_OTHERS = ["README.md", "/Makefile", "inner/Pulumi.prod.yaml", "bases/inner/a.yaml", "/bases/a.yaml", "bases/a.txt"]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(_OTHERS)), st.sets(st.sampled_from(NAMES)))
def test_a_stack_is_left_out_only_where_its_settings_are_the_same_and_nothing_else_changed(
    own: set[str], others: set[str], differing: set[str]
) -> None:
    changed = {PurePosixPath(f"Pulumi.{name}.yaml") for name in own} | {PurePosixPath(other) for other in others}
    changed |= {PurePosixPath("bases/edge.yaml")}
    result = concerned(NAMES, changed, lambda name: name in differing)
    assert set(result) == (set(NAMES) if others else differing)
    assert concerned(NAMES, None, lambda name: name in differing) == NAMES


def test_a_folder_without_stacks_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"There is no file Pulumi\.<stack>\.yaml in .*Give the folder"):
        listed(tmp_path)


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 101, "ä", "$(id)"])
def test_a_file_whose_name_is_none_of_a_stack_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(OperationError, match="is no stack name"):
        listed(tmp_path)


def test_stacks_of_hosts_alone_are_listed_whichever_of_their_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    alone = "config:\n  kai-anywhere:settings:\n    installs: hosts\n"
    files = {
        "bases/racks.yaml": alone,
        "Pulumi.rack-1.yaml": "config:\n  kai-anywhere:base: bases/racks.yaml\n  kai-anywhere:settings: {}\n",
        "Pulumi.rack-2.yaml": alone,
        "Pulumi.prod.yaml": alone.replace("hosts", "everything"),
        "Pulumi.broken.yaml": "- a list",
        "Pulumi.no-settings.yaml": "config: {}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["stacks", "--folder", str(tmp_path), "--hosts-alone"])
    assert json.loads(done.stdout) == ["rack-1", "rack-2"], done.output


@pytest.mark.parametrize(
    ("folder", "path", "seen"),
    [
        ("", "Pulumi.prod.yaml", "Pulumi.prod.yaml"),
        ("", "bases/edge.yaml", "bases/edge.yaml"),
        ("clusters", "clusters/bases/edge.yaml", "bases/edge.yaml"),
        ("clusters", "Pulumi.prod.yaml", "/Pulumi.prod.yaml"),
        ("clusters", "clusters-2/Pulumi.prod.yaml", "/clusters-2/Pulumi.prod.yaml"),
    ],
)
def test_a_path_outside_of_the_folder_is_no_stacks_file(folder: str, path: str, seen: str) -> None:
    assert str(seen_from(PurePosixPath(folder), path)) == seen
