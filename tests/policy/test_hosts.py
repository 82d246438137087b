"""What the policy pack says of the commands that prepare hosts."""

from typing import Any

import pytest
from pulumi.runtime import rpc

from policy.findings import Finding
from policy.judge import judge
from policy.rules import RULES
from testbed.stacks import Json
from tests.policy.objects import TEGRA, UNKNOWN
from tests.support.hosts.settings import full_host, jetson_with_host, local_host, ssh_host
from tests.support.recording_monitor import Registration
from tests.unit.components.hosts.test_hosts import graph_of_hosts


@pytest.fixture(autouse=True)
def _agents_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def _plain(value: object) -> object:
    """Inputs as the engine hands them to a pack: secrets open, what is not known yet as its mark."""
    match value:
        case _ if rpc.is_rpc_secret(value):
            return _plain(rpc.unwrap_rpc_secret(value))
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return UNKNOWN


def _findings(registered: Registration, **changes: object) -> tuple[Finding, ...]:
    name = registered.key.partition(":")[2]
    inputs = {key: _plain(value) for key, value in registered.inputs.items() if key != "source"} | changes
    return judge(registered.type, name, inputs, TEGRA, RULES).findings


@pytest.mark.parametrize("host", [ssh_host(), full_host(), local_host(sudo_password_secret="lab-sudo")])
@pytest.mark.parametrize("first", [True, False])
def test_commands_of_hosts_break_no_rule(host: Json, *, first: bool) -> None:
    graph = graph_of_hosts(jetson_with_host(host), first=first)
    commands = [registered for registered in graph.registrations if registered.type.startswith("command:")]
    assert commands
    assert [_findings(command) for command in commands] == [()] * len(commands)


def test_the_same_commands_with_a_secret_in_their_text_do() -> None:
    graph = graph_of_hosts(jetson_with_host(), first=True)
    probe = graph.by_key["Command:hosts-jetson-1-probe"]
    [finding] = _findings(probe, create=f"{probe.inputs['create']} --password=hunter2")
    assert finding.rule == "secrets-and-host-commands"
