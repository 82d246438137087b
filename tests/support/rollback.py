"""`kai-anywhere rollback` on a stack of a test, which no checkout has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest
from typer.testing import CliRunner, Result

from operations.__main__ import app
from operations.target import Target
from testbed.engine import Stack
from testbed.stacks import parse

Command = Callable[..., Result]


def rollback_of(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command for that stack; as on a simulator, nobody is asked."""

    @contextmanager
    def opened(_: str, *, start: bool = True) -> Iterator[Target]:
        assert not start, "a rollback makes no simulator"
        yield Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ("answers yes",))

    monkeypatch.setattr("operations.rollback.commands.open_target", opened)
    monkeypatch.setenv("PATH", stack.environment["PATH"])

    def run(*options: str, expect: int = 0) -> Result:
        result = CliRunner().invoke(app, ["rollback", "--stack", stack.name, *options])
        assert result.exit_code == expect, f"{result.output}{result.exception!r}"
        return result

    return run


def take_back_half_done_releases(api: httpx2.Client) -> bool:
    """What preflight's message says to do by hand where a kill came inside Helm; tells whether one did."""
    half_done = {"labelSelector": "owner=helm,status=pending-install"}
    secrets = api.get("/api/v1/secrets", params=half_done).json()["items"]
    for metadata in (secret["metadata"] for secret in secrets):
        api.delete(f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}").raise_for_status()
    return bool(secrets)
