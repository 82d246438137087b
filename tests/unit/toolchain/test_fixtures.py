"""Test data out of Go modules."""

from pathlib import Path

import pytest

from tests.support.programs.fixtures import POD_SECURITY, can_fetch, fixtures
from tests.unit.toolchain.conftest import Lay
from toolchain.errors import ToolchainError


def _go(answer: str) -> str:
    return f'case "$1" in env) echo \'{{"GOVERSION": "go1.26.8", "GOCACHE": "/tmp/go"}}\' ;; mod) {answer} ;; esac'


def test_the_folder_of_the_module_is_where_go_keeps_it(on_path: Lay, tmp_path: Path) -> None:
    on_path("go", script=_go(f'echo "$3 $4" >{tmp_path}/asked; echo \'{{"Dir": "{tmp_path}"}}\''))
    assert can_fetch()
    assert fixtures(POD_SECURITY) == tmp_path / "test/testdata"
    assert (tmp_path / "asked").read_text() == "-json k8s.io/pod-security-admission\n"


def test_without_go_the_error_says_what_to_install(on_path: Lay) -> None:
    assert on_path is not None
    assert not can_fetch()
    with pytest.raises(ToolchainError) as caught:
        fixtures(POD_SECURITY)
    assert "no `go` on PATH" in str(caught.value)
    assert "install Go" in str(caught.value)


def test_a_module_that_can_not_be_fetched_is_told_with_gos_words(on_path: Lay) -> None:
    on_path("go", script=_go("echo 'no route to host' >&2; exit 1"))
    with pytest.raises(ToolchainError, match="no route to host") as caught:
        fixtures(POD_SECURITY)
    assert "GOPROXY" in str(caught.value)
