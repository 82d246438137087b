"""Programs of images: the folder that takes the registry's place, and what is asked of crane.

The real crane and a registry are in tests/engine/programs/test_image_programs.py.
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.registry_server import archive, file
from tests.unit.toolchain.conftest import Lay
from tests.unit.toolchain.test_executable import elf
from toolchain import ToolchainError, executable, image_programs, program_of, registry
from toolchain.image_programs import from_image, name_of
from toolchain.official import Platform

_IMAGE = "ghcr.io/kai-scheduler/kai-scheduler/binder:v0.18.6"
_PINNED = "ghcr.io/kai-scheduler/kai-scheduler/binder@sha256:" + "a" * 64
_PROGRAM = elf(62)
Crane = Callable[..., Path]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Linux machine with an amd64 processor."""
    for module in (executable, image_programs):
        monkeypatch.setattr(module, "this_platform", lambda: Platform("linux", "amd64"))


@pytest.fixture
def crane(on_path: Lay, tmp_path: Path) -> Crane:
    """A stand-in for crane with an image of one program; each of its commands can be replaced. Gives its log."""

    def lay(**scripts: str) -> Path:
        configuration = {"os": "linux", "architecture": "amd64", "config": {"Entrypoint": ["/workspace/app", "--all"]}}
        (tmp_path / "image.tar").write_bytes(archive([file("workspace/app", _PROGRAM)]))
        commands = {
            "version": "echo 0.22.1",
            "digest": f"echo {_PINNED}",
            "config": f"echo {shlex.quote(json.dumps(configuration))}",
            "export": f'exec /bin/cp {tmp_path / "image.tar"} "$4"',
        } | scripts
        cases = "\n".join(f"{name}) {script};;" for name, script in commands.items())
        on_path("crane", script=f'echo "$@" >> {tmp_path / "log"}\ncase "$1" in\n{cases}\nesac')
        return tmp_path / "log"

    return lay


class TestAFolder:
    """`KAI_PROGRAMS`."""

    def test_gives_the_program_that_is_named_as_the_image(self, tmp_path: Path) -> None:
        program = tmp_path / "binder"
        program.write_bytes(_PROGRAM)
        program.chmod(0o755)
        for image in (_IMAGE, _PINNED, "registry.example.com:5000/mirror/binder", "binder"):
            answer = program_of(image, str(tmp_path))
            assert (answer.path, answer.source) == (program, str(program))
            assert (answer.arguments, answer.default_arguments, answer.environment) == ((), (), {})

    def test_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ToolchainError, match=f"{tmp_path / 'none'} is no folder"):
            program_of(_IMAGE, str(tmp_path / "none"))

    def test_without_the_program_tells_what_it_has(self, tmp_path: Path) -> None:
        (tmp_path / "scheduler").touch()
        (tmp_path / "binder").mkdir()
        with pytest.raises(ToolchainError, match=f"has no program binder, for {_IMAGE}; it has scheduler"):
            program_of(_IMAGE, str(tmp_path))

    def test_with_a_file_that_is_not_executable_tells_it(self, tmp_path: Path) -> None:
        (tmp_path / "binder").write_bytes(_PROGRAM)
        (tmp_path / "binder").chmod(0o644)
        with pytest.raises(ToolchainError, match="binder is not executable"):
            program_of(_IMAGE, str(tmp_path))

    def test_with_a_program_for_another_processor_tells_both(self, tmp_path: Path) -> None:
        (tmp_path / "binder").write_bytes(elf(183))
        (tmp_path / "binder").chmod(0o755)
        with pytest.raises(ToolchainError, match=r"can't run here: .*linux/arm64, and this machine is linux/amd64"):
            program_of(_IMAGE, str(tmp_path))

    def test_comes_before_the_image(self, tmp_path: Path, crane: Crane) -> None:
        log = crane()
        with pytest.raises(ToolchainError, match="is no folder"):
            program_of(_IMAGE, str(tmp_path / "none"))
        assert not log.exists()


@pytest.mark.parametrize(
    "image",
    [
        "binder",
        "binder:v1",
        "registry:5000/kai/binder",
        "ghcr.io/kai/binder:v1@sha256:00",
        "ghcr.io/kai/binder@sha256:00",
    ],
)
def test_an_images_program_is_called_as_the_last_part_of_its_name(image: str) -> None:
    assert name_of(image) == "binder"


def test_without_a_folder_the_image_is_fetched_by_its_digest(crane: Crane) -> None:
    log = crane()
    program = program_of(_IMAGE, "images")
    assert program.path.read_bytes() == _PROGRAM
    (note,) = (program.path.parents[1] / "images").iterdir()
    assert note.stat().st_mode & 0o044 == 0o044, "others who share the folder need not ask"
    assert (program.arguments, program.default_arguments, program.source) == (("--all",), (), _PINNED)
    asked = [line for line in log.read_text().splitlines() if line != "version"]
    assert asked[0] == f"digest --full-ref --platform linux/amd64 -- {_IMAGE}"
    assert [line.split()[:3] for line in asked[1:]] == [["config", "--", _PINNED], ["export", "--", _PINNED]]


def test_elsewhere_than_on_linux_an_image_is_refused_before_anything_is_asked(
    crane: Crane, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = crane()
    monkeypatch.setattr(image_programs, "this_platform", lambda: Platform("darwin", "arm64"))
    with pytest.raises(ToolchainError, match="this machine runs darwin") as refused:
        from_image(_IMAGE)
    assert "export KAI_PROGRAMS=" in str(refused.value)
    assert not log.exists()


@pytest.mark.parametrize(
    ("command", "script", "why"),
    [
        ("digest", "echo 'Error: GET https://ghcr.io/v2/x: DENIED: requested access' >&2; exit 1", "those who log in"),
        ("digest", "exit 1", "crane failed without a word"),
        ("config", "echo '<html>'", "its configuration is none of an image"),
        ("config", """echo '{"os": "linux", "architecture": "arm64", "config": {}}'""", "the image is for linux/arm64"),
        ("export", "echo 'Error: write f.tar: no space left on device' >&2; exit 1", "not enough disk space"),
        ("export", r"printf 'Error: GET https://ghcr.io/v2/x: \377' >&2; exit 1", "answers: \N{REPLACEMENT CHARACTER}"),
        ("export", 'echo wasm > "$4"', "what it holds are no files"),
        ("export", "echo 'Error: error verifying sha256 checksum' >&2; exit 1", "error verifying sha256 checksum"),
    ],
)
def test_a_failure_says_why_and_leaves_no_program(
    crane: Crane, cache_root: Path, command: str, script: str, why: str
) -> None:
    crane(**{command: script})
    with pytest.raises(ToolchainError, match=why):
        from_image(_IMAGE)
    assert list(cache_root.rglob("binder")) == []


def test_a_silent_registry_is_given_up_and_its_crane_is_ended(
    crane: Crane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_SILENT_SECONDS", 0.3)
    crane(export=f'echo part > "$4"; echo $$ > {tmp_path / "process"}; exec /bin/sleep 60')
    with pytest.raises(ToolchainError, match=r"ghcr\.io sent nothing for"):
        from_image(_IMAGE)
    assert not psutil.pid_exists(int((tmp_path / "process").read_text()))


def test_a_page_in_place_of_an_answer_is_told_in_a_line(crane: Crane, tmp_path: Path) -> None:
    page = "<p>\033[2J\nError: busy\n" + "<p>" * 10_000
    (tmp_path / "page").write_text(f"Error: GET https://ghcr.io/v2/x: unexpected status code 502 Bad Gateway: {page}")
    crane(digest=f"/bin/cat {tmp_path / 'page'} >&2; exit 1")
    with pytest.raises(ToolchainError) as caught:
        from_image(_IMAGE)
    assert caught.value.why == "ghcr.io answers: unexpected status code 502 Bad Gateway: <p> [2J Error: busy [...]"


@pytest.mark.parametrize("damage", ["binder", "configuration.json"])
def test_a_kept_image_of_which_a_file_is_lost_or_empty_is_fetched_again(crane: Crane, damage: str) -> None:
    log = crane()
    program = from_image(_IMAGE)
    (program.path.parent / damage).unlink()
    assert from_image(_IMAGE) == program
    (program.path.parent / damage).write_bytes(b"")
    assert from_image(_IMAGE) == program
    assert program.path.read_bytes() == _PROGRAM
    assert log.read_text().count("export") == 3


def test_a_program_that_this_machine_can_not_run_is_refused_each_time(crane: Crane, tmp_path: Path) -> None:
    log = crane()
    (tmp_path / "image.tar").write_bytes(archive([file("workspace/app", elf(183))]))
    for _ in range(2):
        with pytest.raises(ToolchainError, match="it is a program for linux/arm64"):
            from_image(_IMAGE)
    assert log.read_text().count("export") == 1
