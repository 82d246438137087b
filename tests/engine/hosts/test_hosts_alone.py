"""Hosts in stacks of their own: they move between stacks untouched, and commands need no cluster for them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from operations.__main__ import app
from operations.errors import OperationError
from testbed.hosts.machines import content, jetson
from testbed.hosts.sshd import Machine, Sshd, needs_sshd
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from testbed.stacks import changed

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def machine(shared_server: Sshd) -> Machine:
    return jetson(shared_server)


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    return content(machine.root)


@pytest.fixture(scope="module")
def stack(
    shared_server: Sshd, machine: Machine, before: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> HostsStack:
    """One stack for every test, in the order of its life."""
    assert before
    return _stack(tmp_path_factory.mktemp("stack") / "rack-1", shared_server, machine)


def _stack(folder: Path, server: Sshd, machine: Machine, name: str = "test") -> HostsStack:
    hosts = {"jetson-1": ssh_host(server, machine)}
    return HostsStack(folder, tegra_stack(hosts), {LOGIN_KEY: server.private_key}, name=name)


def _files(machine: Machine) -> dict[str, str]:
    """What is on the machine but for the journal, which also says whose it is."""
    return {path: text for path, text in content(machine.root).items() if not path.endswith("/journal.json")}


class TestCommands:
    """Of people and workflows, without any cluster."""

    @pytest.fixture(autouse=True)
    def _in_the_stacks_folder(self, stack: HostsStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name, value in stack.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("KUBECONFIG", raising=False)
        for module in ("target", "charts.commands", "reading", "fleet.states"):
            monkeypatch.setattr(f"operations.{module}.ROOT", stack.folder)
        yield
        assert not (stack.folder / ".simulator").exists(), "nothing is simulated"

    def _run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    def test_the_policies_are_proven_and_find_nothing(
        self, stack: HostsStack, machine: Machine, before: dict[str, str]
    ) -> None:
        result = self._run("policy", "--stack", stack.name)
        assert "Every policy refused its canary, and nothing in these stacks." in result.output, result.exception
        assert content(machine.root) == before

    def test_a_roll_out_a_review_and_a_look_for_drift_need_no_cluster(
        self,
        stack: HostsStack,
        machine: Machine,
        before: dict[str, str],
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        out = tmp_path / "out"
        result = self._run("preflight", "--stack", stack.name)
        assert (
            result.output == "Stack 'test' prepares hosts alone, so no cluster was asked. Only `up` asks the hosts.\n"
        )
        self._run("review", "--stack", stack.name, "--out", str(out))
        comment = (out / "comment.md").read_text(encoding="utf-8")
        assert "hosts-jetson-1-configured" in comment, capfd.readouterr()
        assert content(machine.root) == before, "a review changes nothing"
        assert self._run("fleet", "update", stack.name, "--out", str(out)).exit_code == 0
        assert json.loads((out / "test.json").read_text(encoding="utf-8"))["outcome"] == "updated"
        assert content(machine.root) != before
        result = self._run("drift", "--stack", stack.name, "--out", str(out))
        assert "The state of stack 'test' is as its settings say." in result.output, result.exception
        result = self._run("fleet", "status", "--folder", str(stack.folder), "--json")
        [site] = json.loads(result.output)["sites"]
        assert (site["cluster"], site["platform"], site["unread"], site["resources"]) == (None, "tegra", None, 3)

    @pytest.mark.parametrize(
        ("command", "answer"),
        [
            (("rollback",), "To give the hosts back: kai-anywhere down --stack test"),
            (("images",), "no node pulls an image for it"),
            (("status",), "Name the cluster of these hosts: KUBECONFIG, or --context."),
            (("verify",), "Name the cluster of these hosts: KUBECONFIG, or --context."),
        ],
    )
    def test_what_is_of_a_cluster_says_so(self, stack: HostsStack, command: tuple[str, ...], answer: str) -> None:
        result = self._run(*command, "--stack", stack.name)
        assert isinstance(result.exception, OperationError), result.output
        assert answer in str(result.exception)


def test_a_stack_of_hosts_becomes_one_with_everything_only_with_a_cluster(stack: HostsStack, machine: Machine) -> None:
    configured, good = content(machine.root), stack.settings
    assert not [r["type"] for r in stack.resources() if "kubernetes" in r["type"]]
    # A stack that has resources is not previewed without its cluster.
    stack.settings = changed(stack.settings, "installs", "everything")
    stack.settings = changed(stack.settings, "cluster.kubeconfig", str(stack.folder / "none"))
    assert "No kubeconfig at" in stack.preview(expect=1).output
    assert content(machine.root) == configured
    stack.settings = good


def test_a_host_moves_to_another_stack_as_the_page_says_and_is_given_back_by_that(
    stack: HostsStack, shared_server: Sshd, machine: Machine, before: dict[str, str], tmp_path: Path
) -> None:
    configured = _files(machine)
    assert configured != before
    other = _stack(tmp_path / "rack-2", shared_server, machine, name="rack-2")
    other.up()
    assert _files(machine) == configured
    stack.settings = changed(stack.settings, "hosts", {})
    stack.up()
    assert not [r for r in stack.resources() if r["type"].startswith("command:")], "the host is forgotten"
    assert _files(machine) == configured, "and left as it is: it is another stack's by now"
    copied = {path.relative_to(machine.home).parts[:4] for path in machine.home.rglob("kai-host.pyz")}
    assert copied == {(".kai-anywhere", "jetson-1", "kai-anywhere", "rack-2")}
    other.settings = changed(other.settings, "platform.container_runtime_mode", "cdi")
    other.up()
    other.destroy()
    assert content(machine.root) == before
    assert not list(machine.home.iterdir()), "the agent must not stay"
