"""Builds of a tiny module with the real `go`: concurrent runs, killed runs, real results."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolchain import ToolchainError
from toolchain.build import built
from toolchain.recipe import Recipe

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="needs the `go` command"),
]

_MAIN = """package main

import "fmt"

var version = "unset"

func main() { fmt.Println("tool", version) }
"""
_BUILD = """
import sys
from toolchain.build import built
from toolchain.recipe import Recipe
print(built(Recipe(name="tool", version="1.0.0", folder=sys.argv[1], packages=(("kwok", "."),),
                   variables=(("main.version", "1.0.0"),), minutes=1, go_cache_mib=1, result_mib=1)))
"""
_DEADLINE_SECONDS = 60


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A module of one package, in a cache of its own."""
    monkeypatch.setenv("KAI_ANYWHERE_CACHE", str(tmp_path / "cache"))
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module example.com/tool\n\ngo 1.21\n")
    (module / "go.sum").touch()
    (module / "main.go").write_text(_MAIN)
    return Recipe(
        name="tool",
        version="1.0.0",
        folder=str(module),
        packages=(("kwok", "."),),
        variables=(("main.version", "1.0.0"),),
        minutes=1,
        go_cache_mib=1,
        result_mib=1,
    )


@pytest.fixture
def slow_go(tmp_path: Path) -> Path:
    """A folder with a `go` that logs each build and waits for the file `go-on` before the real one builds."""
    real = shutil.which("go")
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "go").write_text(
        f'#!/bin/sh\nif [ "$1" = build ]; then echo $$ >> "{folder}/builds"; '
        f'while [ ! -e "{folder}/go-on" ]; do sleep 0.05; done; fi\nexec "{real}" "$@"\n'
    )
    (folder / "go").chmod(0o755)
    return folder


@pytest.fixture
def start(recipe: Recipe, slow_go: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start processes that build the recipe with the slow `go`; none of them is left at the end."""
    started: list[subprocess.Popen[str]] = []

    def start_one() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _BUILD, recipe.folder],
            cwd=Path(__file__).parents[3],
            env=os.environ | {"PATH": f"{slow_go}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    (slow_go / "go-on").touch()
    for process in started:
        process.communicate(timeout=_DEADLINE_SECONDS)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_build_leaves_the_program_with_its_version_and_nothing_else(recipe: Recipe) -> None:
    folder = built(recipe)
    assert subprocess.run([folder / "kwok"], capture_output=True, text=True, check=True).stdout == "tool 1.0.0\n"
    assert [path.name for path in folder.iterdir()] == ["kwok"]
    assert sorted(path.name for path in Path(recipe.folder).iterdir()) == ["go.mod", "go.sum", "main.go"]


def test_a_changed_source_is_another_entry(recipe: Recipe) -> None:
    first = built(recipe)
    (Path(recipe.folder) / "main.go").write_text(_MAIN.replace('"tool"', '"changed"'))
    second = built(recipe)
    assert second != first
    assert subprocess.run([second / "kwok"], capture_output=True, text=True, check=True).stdout == "changed 1.0.0\n"


def test_two_concurrent_runs_build_once(
    start: Callable[[], subprocess.Popen[str]], slow_go: Path, recipe: Recipe
) -> None:
    first = start()
    _wait_for((slow_go / "builds").exists)
    second = start()
    assert second.stderr is not None
    assert second.stderr.readline() == "waiting for kwok 1.0.0: another run is getting it\n"
    (slow_go / "go-on").touch()
    outputs = [process.communicate(timeout=_DEADLINE_SECONDS)[0] for process in (first, second)]
    assert outputs[0] == outputs[1] == f"{built(recipe)}\n"
    assert len((slow_go / "builds").read_text().splitlines()) == 1


def test_a_run_killed_while_building_is_made_good_by_the_next(
    start: Callable[[], subprocess.Popen[str]], slow_go: Path, tmp_path: Path, recipe: Recipe
) -> None:
    first = start()
    _wait_for((slow_go / "builds").exists)
    first.send_signal(signal.SIGKILL)
    first.wait(_DEADLINE_SECONDS)
    cache_root = tmp_path / "cache" / "toolchain"
    assert [path.suffix[:9] for path in cache_root.iterdir() if path.is_dir()] == [".partial-"]
    folder = built(recipe)
    assert [path for path in cache_root.iterdir() if path.is_dir()] == [folder]
    assert subprocess.run([folder / "kwok"], capture_output=True, text=True, check=True).stdout == "tool 1.0.0\n"


def test_a_source_that_does_not_compile_shows_the_compilers_words(recipe: Recipe, tmp_path: Path) -> None:
    (Path(recipe.folder) / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    with pytest.raises(ToolchainError, match=r"undefined: undefined"):
        built(recipe)
    assert [path for path in (tmp_path / "cache" / "toolchain").iterdir() if path.is_dir()] == []
