"""Builds that can't be, with scripts in place of `go`: each is an error that says what, why and what to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.toolchain.conftest import Lay
from toolchain import ToolchainError
from toolchain.build import built
from toolchain.recipe import Recipe

_ENVIRONMENT = """
case "$1" in
env) echo '{"GOVERSION": "go1.26.8", "GOCACHE": "/nowhere/go-build"}';;
list) echo "package example.com/tool true";;
build) FAILURE;;
esac
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A module without requirements; only real Go could build it."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "go.mod").write_text("module example.com/tool\n\ngo 1.26.0\n")
    return Recipe(
        name="tool",
        version="1.0.0",
        folder=str(tmp_path / "module"),
        packages=(("kwok", "."),),
        minutes=1,
        go_cache_mib=1,
        result_mib=1,
    )


@pytest.fixture
def nothing_is_left(cache_root: Path) -> object:
    """Assert at a test's end that the cache holds no entry and no unfinished work."""
    yield
    assert [path.name for path in cache_root.iterdir() if path.suffix != ".lock"] == []


pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_a_missing_go_is_named_with_the_version_to_install(recipe: Recipe, on_path: Lay) -> None:
    on_path("unrelated")
    with pytest.raises(ToolchainError) as caught:
        built(recipe)
    assert "kwok 1.0.0 can't be built" in str(caught.value)
    assert "install Go 1.26.0 or newer" in str(caught.value)


def test_a_go_that_is_too_old_is_named_with_both_versions(recipe: Recipe, on_path: Lay) -> None:
    on_path("go", '{"GOVERSION": "go1.25.9", "GOCACHE": "/nowhere"}')
    with pytest.raises(ToolchainError, match=r"go1\.25\.9(.|\n)*install Go 1\.26\.0 or newer"):
        built(recipe)


def test_a_go_that_refuses_the_module_is_quoted(recipe: Recipe, on_path: Lay) -> None:
    refusal = "go: go.mod requires go >= 1.26.0 (running go 1.22.2; GOTOOLCHAIN=local)"
    on_path("go", script=f"echo '{refusal}' >&2; exit 1")
    with pytest.raises(ToolchainError) as caught:
        built(recipe)
    assert refusal in str(caught.value)


def test_a_go_that_answers_nonsense_is_not_trusted(recipe: Recipe, on_path: Lay) -> None:
    on_path("go", "what?")
    with pytest.raises(ToolchainError, match="what\\?"):
        built(recipe)


def test_a_go_for_another_machine_is_told_and_not_the_cache_folder(recipe: Recipe, on_path: Lay) -> None:
    on_path("go").write_bytes(b"\x7fELF\x02\x01\x01 of another machine")
    with pytest.raises(ToolchainError, match=r"`go` on PATH can't be run(.|\n)*install Go 1\.26\.0") as caught:
        built(recipe)
    assert "cache folder" not in str(caught.value)


def test_what_is_built_is_for_this_machine_and_of_modules_whatever_is_exported(
    recipe: Recipe, on_path: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOS", "plan9")
    monkeypatch.setenv("GOARCH", "mips")
    monkeypatch.setenv("GO111MODULE", "off")
    on_path("go", script=_ENVIRONMENT.replace("FAILURE", 'echo "for <$GOOS/$GOARCH>, modules $GO111MODULE"; exit 1'))
    with pytest.raises(ToolchainError, match="for </>, modules on"):
        built(recipe)


@pytest.mark.parametrize(
    ("exported", "used"),
    [({}, "off and 1000MiB"), ({"GOGC": "50"}, "50 and "), ({"GOMEMLIMIT": "300MiB"}, " and 300MiB")],
)
def test_compilers_rarely_look_for_garbage_unless_somebody_has_said_when(
    recipe: Recipe, on_path: Lay, monkeypatch: pytest.MonkeyPatch, exported: dict[str, str], used: str
) -> None:
    for name in ("GOGC", "GOMEMLIMIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    on_path("go", script=_ENVIRONMENT.replace("FAILURE", 'echo "garbage <$GOGC and $GOMEMLIMIT>"; exit 1'))
    with pytest.raises(ToolchainError, match=f"garbage <{used}>"):
        built(recipe)


@pytest.mark.parametrize("reason", ["no space left on device", "disk quota exceeded"])
def test_a_disk_that_fills_up_is_recognised(recipe: Recipe, on_path: Lay, reason: str) -> None:
    failure = f"echo 'compile: writing output: write /tmp/go-build/b001/_pkg_.a: {reason}' >&2; exit 1"
    on_path("go", script=_ENVIRONMENT.replace("FAILURE", failure))
    with pytest.raises(ToolchainError, match=rf"not enough disk space(.|\n)*{reason}(.|\n)*GOTMPDIR") as caught:
        built(recipe)
    assert str(Path.cwd()) not in str(caught.value), "the checkout's disk is none of those"


def test_a_failed_build_shows_its_last_lines_and_not_the_packages_that_went_well(recipe: Recipe, on_path: Lay) -> None:
    failure = 'i=0; while [ $i -lt 40 ]; do echo "line $i"; i=$((i+1)); done; echo example.com/tool; exit 2'
    on_path("go", script=_ENVIRONMENT.replace("FAILURE", failure))
    with pytest.raises(ToolchainError) as caught:
        built(recipe)
    shown = str(caught.value).splitlines()
    assert "line 39" in shown
    assert "line 20" in shown
    assert "line 19" not in shown
    assert "example.com/tool" not in shown


def test_a_disk_too_small_for_the_build_is_refused_before_it_starts(
    recipe: Recipe, on_path: Lay, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    on_path("go", script=_ENVIRONMENT.replace("FAILURE", f"echo > {started}"))
    huge = replace(recipe, go_cache_mib=1 << 40)
    with pytest.raises(ToolchainError, match=r"MiB are free, about 1099511627777 MiB are needed"):
        built(huge)
    assert not started.exists()
