"""`kai-anywhere init`: a repository of one's own, written whole or not at all."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from config.cluster import Distribution
from operations import version
from operations.__main__ import app
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.init.choices import Way, checked
from operations.init.files import SLUG, TEMPLATES, contents, of_version
from operations.stack_file import read_settings
from operations.target import own_project
from operations.version import commit, project_version
from policy.own_exceptions import parse
from testbed.stacks import ROOT, Json
from tests.support.checkout import shell
from tests.support.docs import blocks, command
from tests.support.releases import git
from tests.support.terminal import CTRL_C, terminal

REPOSITORY = "https://github.com/my-example/kai-anywhere"
SAID = {
    "stack": "prod",
    "platform": "tegra",
    "distribution": "k3s",
    "way": "component",
    "repository": REPOSITORY,
    "version": "v1.2.3",
}
SHARED = (
    ".gitignore",
    ".github/workflows/daily.yml",
    ".github/workflows/pull-request.yml",
    "Pulumi.prod.yaml",
    "policy-exceptions.yaml",
)


def _init(folder: Path, **other: str) -> Result:
    options = [word for name, value in (SAID | other).items() if value for word in (f"--{name}", value)]
    return CliRunner().invoke(app, ["init", str(folder), *options])


def _files(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8")
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("way", "own"), [("component", ()), ("program", ("__main__.py", "requirements.txt"))], ids=["component", "program"]
)
def test_the_repository_holds_only_what_is_the_teams(tmp_path: Path, way: str, own: tuple[str, ...]) -> None:
    folder = tmp_path / "deep" / "clusters"
    done = _init(folder, way=way)
    assert done.exit_code == 0, done.output
    files = _files(folder)
    assert files.keys() == {*SHARED, "Pulumi.yaml", "README.md", *own}
    assert all(name in done.output for name in files)
    assert "pulumi stack init prod" in done.output
    assert len(files["README.md"].splitlines()) in range(8, 15)
    text = "\n".join(files.values())
    assert not re.search(rf"(?<!my-){SLUG}", text), "nothing of the placeholder stays"
    assert "my-my-example" not in text
    assert f"v{project_version()}" not in text


_LOGIN = "pulumi login --local (or with your bucket's address)"
"""Without either, pulumi asks for an account of Pulumi Cloud."""


@pytest.mark.parametrize(("way", "first"), [("component", _LOGIN), ("program", f"pulumi install, {_LOGIN}")])
def test_what_comes_next_begins_with_what_the_way_needs(tmp_path: Path, way: str, first: str) -> None:
    done = _init(tmp_path, way=way)
    assert f"Then, in that folder: {first}, pulumi stack init prod, pulumi preview." in done.output
    readme = (tmp_path / "README.md").read_text(encoding="utf-8").replace("`", "")
    assert f"- First: {first}, pulumi stack init <stack>." in readme


def test_the_command_of_the_guide_writes_what_the_guide_lists(tmp_path: Path) -> None:
    script = command("teams.md", "kai-anywhere init clusters --stack prod --platform tegra --distribution k3s \\")
    shell(script, tmp_path, {"PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}"})
    files = {name.rpartition("/")[0] if "/" in name else name for name in _files(tmp_path / "clusters")}
    section = (
        (ROOT / "docs" / "teams.md").read_text(encoding="utf-8").partition("| File | Holds |")[2].partition("\n\n")[0]
    )
    assert files - {"README.md", ".gitignore"} == set(re.findall(r"(?m)^\| `([^`]+)` \|", section))


_OWN_STACKS = command("teams.md", "git rm --quiet Pulumi.jetson.yaml Pulumi.x86.yaml")


def _checkout(folder: Path) -> Path:
    folder.mkdir()
    for file in ("Pulumi.yaml", "Pulumi.jetson.yaml", "Pulumi.x86.yaml"):
        (folder / file).write_text("an example", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "A version")
    return folder


def test_a_checkout_works_on_the_stacks_of_a_repository_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, theirs = _checkout(tmp_path / "kai-anywhere"), tmp_path / "clusters"
    assert _init(theirs).exit_code == 0
    shell(_OWN_STACKS, checkout)
    there = {"Pulumi.yaml", "Pulumi.prod.yaml", "policy-exceptions.yaml"}
    assert {file.name for file in checkout.iterdir()} == there | {".git", ".project"}
    monkeypatch.setattr("operations.target.ROOT", checkout)
    assert own_project() == theirs
    assert read_settings(checkout / "Pulumi.prod.yaml") == read_settings(theirs / "Pulumi.prod.yaml")


@pytest.mark.parametrize("stack", ["prod", "jetson"])
def test_such_a_checkout_moves_to_the_next_version(tmp_path: Path, stack: str) -> None:
    origin = _checkout(tmp_path / "origin")
    git(tmp_path, "clone", "--quiet", str(origin), "kai-anywhere")
    checkout = tmp_path / "kai-anywhere"
    assert _init(tmp_path / "clusters", stack=stack).exit_code == 0
    shell(_OWN_STACKS, checkout)
    for file in ("Pulumi.yaml", "Pulumi.jetson.yaml"):
        (origin / file).write_text("a newer example", encoding="utf-8")
    git(origin, "commit", "--quiet", "--all", "--message", "The next version")
    git(origin, "tag", "v1.2.4")
    shell(command("teams.md", "git fetch --quiet --tags"), checkout)
    shell(_OWN_STACKS, checkout)
    assert (checkout / "Pulumi.yaml").read_text(encoding="utf-8") == "a newer example"
    assert {file.name for file in checkout.glob("Pulumi.*.yaml")} == {f"Pulumi.{stack}.yaml"}
    assert read_settings(checkout / f"Pulumi.{stack}.yaml").platform.jetsons


def test_a_checkout_whose_stack_files_somebody_edited_is_left_as_it_is(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path / "kai-anywhere")
    assert _init(tmp_path / "clusters").exit_code == 0
    (checkout / "Pulumi.jetson.yaml").write_text("an edit", encoding="utf-8")
    before = {file.name for file in checkout.iterdir()}
    shell(_OWN_STACKS, checkout, expect=1)
    assert {file.name for file in checkout.iterdir()} == before
    assert (checkout / "Pulumi.jetson.yaml").read_text(encoding="utf-8") == "an edit"


@pytest.mark.parametrize("distribution", [distribution.value for distribution in Distribution])
@pytest.mark.parametrize(("platform", "jetsons"), [("tegra", ["jetson-1"]), ("x86", [])])
def test_the_stack_file_is_valid_and_short(
    tmp_path: Path, platform: str, jetsons: list[str], distribution: str
) -> None:
    assert _init(tmp_path, platform=platform, distribution=distribution).exit_code == 0
    file = tmp_path / "Pulumi.prod.yaml"
    settings = read_settings(file)
    assert settings.platform.kind == platform
    assert list(settings.platform.jetsons) == jetsons
    assert settings.cluster.distribution == distribution
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# yaml-language-server: $schema={REPOSITORY}/")
    assert len(lines) < 20
    assert ("EDIT" in file.read_text(encoding="utf-8")) == bool(jetsons)


@pytest.mark.parametrize(
    ("way", "file"), [("component", "Pulumi.yaml"), ("program", "requirements.txt")], ids=["component", "program"]
)
def test_the_version_stands_in_one_line_beside_those_of_the_workflows(tmp_path: Path, way: str, file: str) -> None:
    assert _init(tmp_path, way=way).exit_code == 0
    files = _files(tmp_path)
    of = {name: [line for line in text.splitlines() if "1.2.3" in line] for name, text in files.items()}
    assert {name: len(lines) for name, lines in of.items() if lines} == {
        file: 1,
        ".github/workflows/daily.yml": 1,
        ".github/workflows/pull-request.yml": 2,
    }
    assert "github.com/my-example/kai-anywhere" in files[file]
    assert all(
        f"uses: my-example/kai-anywhere/.github/workflows/{name}.yml@v1.2.3" in "\n".join(files.values())
        for name in ("policy", "preview", "drift")
    )


def test_the_place_of_exceptions_is_one_that_the_policy_pack_reads(tmp_path: Path) -> None:
    assert _init(tmp_path).exit_code == 0
    text = (tmp_path / "policy-exceptions.yaml").read_text(encoding="utf-8")
    assert parse(yaml.safe_load(text), "policy-exceptions.yaml", ["privileged"]) == ()


@pytest.mark.parametrize("way", list(Way))
def test_the_workflows_are_those_of_the_guide(tmp_path: Path, way: Way) -> None:
    assert _init(tmp_path, way=way, repository="https://github.com/example/kai-anywhere").exit_code == 0
    guide = {block.text for block in blocks(ROOT / "docs" / "teams.md", "yaml") if "\njobs:" in block.text}
    written = {file.read_text(encoding="utf-8") for file in (tmp_path / ".github" / "workflows").iterdir()}
    assert written == guide


@pytest.mark.parametrize("name", [*SHARED[:3], "Pulumi.jetson.yaml", "Pulumi.x86.yaml", SHARED[4]])
def test_both_templates_say_the_same_where_the_way_does_not_matter(name: str) -> None:
    assert (TEMPLATES / "component" / name).read_bytes() == (TEMPLATES / "program" / name).read_bytes()


@pytest.mark.parametrize("way", list(Way))
def test_a_template_is_told_to_pulumi_new_and_is_of_this_version(way: Way) -> None:
    project: Json = yaml.safe_load((TEMPLATES / way / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert project["name"] == "kai-anywhere", "settings and state go by this name"
    assert project["template"].keys() == {"displayName", "description"}
    text = "\n".join(_files(TEMPLATES / way).values())
    assert set(re.findall(r"(?:@v|version: )(\d+\.\d+\.\d+)", text)) == {project_version()}


def test_a_new_version_of_this_repository_is_written_into_every_line_that_names_it() -> None:
    now = {file: file.read_text(encoding="utf-8") for file in of_version("v7.8.9")}
    assert of_version(f"v{project_version()}") == now
    changed = {file.name for file, text in of_version("v7.8.9").items() if text != now[file]}
    assert changed == {"Pulumi.yaml", "PulumiPolicy.yaml", "requirements.txt", "daily.yml", "pull-request.yml"}
    assert not [text for text in of_version("v7.8.9").values() if f"@v{project_version()}" in text]


@pytest.mark.parametrize("way", list(Way))
def test_the_written_project_is_no_template_any_more(way: Way) -> None:
    files = {str(path): text for path, text in contents(checked(**SAID | {"way": way})).items()}
    written = yaml.safe_load(files["Pulumi.yaml"])
    of_template = yaml.safe_load((TEMPLATES / way / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert written.keys() == of_template.keys() - {"template"}


@pytest.mark.parametrize("there", ["Pulumi.prod.yaml", ".github/workflows/daily.yml", "Pulumi.yml", "Pulumi.json"])
def test_nothing_is_overwritten_and_nothing_else_written(tmp_path: Path, there: str) -> None:
    file = tmp_path / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("theirs", encoding="utf-8")
    done = _init(tmp_path)
    assert isinstance(done.exception, OperationError)
    assert there in str(done.exception)
    assert "Nothing was written" in str(done.exception)
    assert _files(tmp_path) == {there: "theirs"}


def test_a_repository_that_has_a_readme_and_a_gitignore_keeps_them_and_is_told_what_ours_say(tmp_path: Path) -> None:
    theirs = {"README.md": "theirs", ".gitignore": "*.log"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = _init(tmp_path)
    assert done.exit_code == 0, done.output
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in theirs} == theirs
    assert (tmp_path / "Pulumi.prod.yaml").is_file()
    wrote = done.output.partition("was there already")[0]
    assert "  Pulumi.prod.yaml\n" in wrote
    assert "  README.md\n" not in wrote
    assert (
        ".gitignore was there already and is as it was. Ours would have said:\n  .venv/\n  __pycache__/\n"
        in done.output
    )
    assert "README.md was there already and is as it was. Ours would have said:\n  # GPU sharing" in done.output


def test_a_link_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").symlink_to(tmp_path.parent / "elsewhere")
    assert isinstance(_init(tmp_path).exception, OperationError)
    assert not (tmp_path.parent / "elsewhere").exists()


def test_a_folder_that_can_not_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / ".github").touch()
    done = _init(tmp_path)
    assert isinstance(done.exception, OperationError)
    assert "can't be written" in str(done.exception)
    assert _files(tmp_path) == {".github": ""}


@pytest.mark.parametrize("folder", ["circle", "circle/below"])
def test_links_that_lead_in_a_circle_are_no_folder(folder: str, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "circle")
    done = _init(tmp_path / folder)
    assert isinstance(done.exception, OperationError)
    assert "can't be written: Too many levels of symbolic links. No file was left" in str(done.exception)


def test_a_full_disk_is_told_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def full(self: Path, mode: str = "r", *more: Any, **how: Any) -> Any:  # noqa: ANN401 - as it is
        return opened(Path("/dev/full"), "w", *more, **how) if mode == "x" else opened(self, mode, *more, **how)

    monkeypatch.setattr(Path, "open", full)
    refusal = str(_init(tmp_path).exception)
    assert refusal == f"{tmp_path} can't be written: No space left on device. No file was left in {tmp_path}."


def test_the_checkout_of_the_program_is_no_place_for_it() -> None:
    done = _init(ROOT / "clusters")
    assert isinstance(done.exception, OperationError)
    assert "Give a folder elsewhere" in str(done.exception)
    assert not (ROOT / "clusters").exists()


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("stack", "a/b", "no stack name"),
        ("stack", "prod lab", "no stack name"),
        ("stack", ".hidden", "no stack name"),
        ("stack", "x" * 101, "no stack name"),
        ("stack", "prod\n", "no stack name"),
        ("stack", "prod-Rollout", "no name that the workflows take"),
        ("platform", "jetson", "it must be 'tegra' or 'x86'"),
        ("distribution", "k4s", "it must be 'kubeadm', 'k3s', "),
        ("way", "fork", "it must be 'component' or 'program'"),
        ("repository", "git@github.com:example/kai-anywhere.git", "not the address of a Git repository"),
        ("repository", "http://github.com/example/kai-anywhere", "not the address of a Git repository"),
        ("repository", "https://user:word@github.com/example/kai-anywhere", "not the address of a Git repository"),
        ("repository", "https://github.com/example", "not the address of a Git repository"),
        ("repository", "https://github.com/example/kai-anywhere/tree/main", "not the address of a Git repository"),
        ("repository", "https://github.com/example/kai anywhere", "not the address of a Git repository"),
        ("version", "1.2.3", "no version: write a tag of the repository, such as v1.2.3"),
        ("version", "main", "no version"),
        ("version", "v1.2", "no version"),
        ("version", "v1.2.3 # x", "no version"),
    ],
)
def test_what_is_not_allowed_is_named_and_nothing_is_written(
    tmp_path: Path, option: str, value: str, says: str
) -> None:
    done = _init(tmp_path / "new", **{option: value})
    assert isinstance(done.exception, OperationError)
    assert f"--{option} {value!r} is" in str(done.exception)
    assert says in str(done.exception)
    assert "Nothing was written." in str(done.exception)
    assert not (tmp_path / "new").exists()


def test_a_component_is_not_fetched_through_a_port(tmp_path: Path) -> None:
    address = "https://git.example.com:8443/ops/kai"
    done = _init(tmp_path, repository=address)
    assert isinstance(done.exception, OperationError)
    assert str(done.exception) == (
        f"--repository '{address}' names a port, and Pulumi fetches components without one. Use an address without it, "
        "or --way program.\nNothing was written."
    )
    assert not _files(tmp_path)
    assert _init(tmp_path, repository=address, way="program").exit_code == 0
    assert f"git+{address}@v1.2.3" in _files(tmp_path)["requirements.txt"]


def test_git_at_the_end_of_an_address_is_no_part_of_it(tmp_path: Path) -> None:
    assert _init(tmp_path, way="program", repository=f"{REPOSITORY}.git").exit_code == 0
    [line] = [line for line in _files(tmp_path)["requirements.txt"].splitlines() if not line.startswith("#")]
    assert line == f"kai-anywhere @ git+{REPOSITORY}@v1.2.3"


def test_a_folder_of_a_larger_repository_is_told_where_its_workflows_belong(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    done = _init(tmp_path / "infra" / "gpus")
    assert done.exit_code == 0
    assert f"is a part of the repository {tmp_path}" in done.output
    assert "add `folder: infra/gpus`" in done.output
    (tmp_path / "own" / ".git").mkdir(parents=True)
    assert "is a part of" not in _init(tmp_path / "own").output


@pytest.mark.parametrize(
    ("origin", "taken"),
    [
        ("https://github.com/our/fork.git", "git+https://github.com/our/fork@v"),
        ("git@github.com:our/fork.git", None),
        ("https://user:word@github.com/our/fork.git", None),
        (None, None),
    ],
)
def test_the_repository_is_by_default_where_the_checkout_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, taken: str | None
) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", str(checkout), "remote", "add", "origin", origin], check=True)
    (checkout / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    monkeypatch.setattr(version, "ROOT", checkout)
    done = _init(tmp_path / "new", way="program", repository="", version="")
    if taken is None:
        assert isinstance(done.exception, OperationError)
        assert "--repository is missing" in str(done.exception)
        assert "word" not in str(done.exception)
        assert not (tmp_path / "new").exists()
    else:
        assert f"{taken}{project_version()}\n" in _files(tmp_path / "new")["requirements.txt"]


def test_without_git_the_repository_is_asked_for_and_the_version_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = _init(tmp_path / "new", repository="")
    assert isinstance(done.exception, OperationError)
    assert "--repository is missing" in str(done.exception)
    assert commit() == ""


def test_without_a_terminal_what_is_missing_is_named(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "operations", "init", str(tmp_path / "new"), "--repository", REPOSITORY]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "--stack is missing, and there is no terminal to ask at. Nothing was written.\n"
    assert not (tmp_path / "new").exists()


def test_a_person_at_a_terminal_is_asked_three_questions(tmp_path: Path) -> None:
    words = [str(ROOT / "bin" / "kai-anywhere"), "init", "clusters", "--repository", REPOSITORY]
    with terminal(words, dict(os.environ), folder=tmp_path) as shown:
        for question, answer in (("Name of the stack", "lab"), ("Platform", "x86"), ("Distribution", "")):
            shown.until(question)
            shown.press(f"{answer}\n")
        assert shown.status() == 0, shown.shown
    assert sum("]:" in line for line in shown.lines) == 3
    settings = read_settings(tmp_path / "clusters" / "Pulumi.lab.yaml")
    assert (settings.platform.kind, settings.cluster.distribution) == ("x86", "k3s")


def test_an_answer_that_is_not_allowed_is_asked_for_again(tmp_path: Path) -> None:
    words = [str(ROOT / "bin" / "kai-anywhere"), "init", "clusters", "--repository", REPOSITORY]
    answers = (
        ("Name of the stack", "a b"),
        ("--stack 'a b' is no stack name", "lab"),
        ("Platform", "arm"),
        ("--platform 'arm' is not allowed: it must be", "x86"),
        ("Distribution", ""),
    )
    with terminal(words, dict(os.environ), folder=tmp_path) as shown:
        for question, answer in answers:
            shown.until(question)
            shown.press(f"{answer}\n")
        assert shown.status() == 0, shown.shown
    settings = read_settings(tmp_path / "clusters" / "Pulumi.lab.yaml")
    assert settings.platform.kind == "x86"


def test_a_folder_within_the_checkout_is_refused_before_anything_is_asked() -> None:
    done = _init(ROOT / "clusters", stack="")
    assert isinstance(done.exception, OperationError)
    assert str(done.exception).endswith("Nothing was written. Give a folder elsewhere.")
    assert "Name of the stack" not in done.output
    assert not (ROOT / "clusters").exists()


def test_ctrl_c_at_a_question_ends_as_everywhere_else_and_writes_nothing(tmp_path: Path) -> None:
    words = [str(ROOT / "bin" / "kai-anywhere"), "init", "clusters", "--repository", REPOSITORY]
    with terminal(words, dict(os.environ), folder=tmp_path) as shown:
        shown.asked("Name of the stack")
        shown.press(CTRL_C)
        assert shown.status() == ExitStatus.INTERRUPTED
    assert shown.lines[-2].startswith("Interrupted.")
    assert not (tmp_path / "clusters").exists()
