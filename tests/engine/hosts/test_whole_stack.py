"""The whole program with a host behind SSH: what the host says of itself reaches the cluster."""

import httpx2
import pytest

import simulator
import toolchain
from testbed.engine import Stack
from testbed.hosts.machines import JETSON_MEMORY_MIB, TOOLKIT_CONFIG, content, jetson
from testbed.hosts.sshd import Machine, Sshd, needs_sshd
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from testbed.simulated import stack_settings
from testbed.stacks import changed

pytestmark = needs_sshd

_MEMORY = "nvidia.com/gpu.memory"


@pytest.fixture(scope="module")
def machine(shared_server: Sshd) -> Machine:
    return jetson(shared_server)


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    return content(machine.root)


@pytest.fixture(scope="module")
def stack(
    shared_server: Sshd,
    machine: Machine,
    cluster: simulator.ControlPlane,
    before: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Stack:
    assert before
    settings = stack_settings(
        tegra_stack({"jetson-1": ssh_host(shared_server, machine)}, installs="everything"), cluster
    )
    folder = tmp_path_factory.mktemp("stack") / "own"
    secrets = {LOGIN_KEY: shared_server.private_key}
    return HostsStack(folder, settings, secrets, programs=toolchain.ENGINE)


def _label(api: httpx2.Client) -> str | None:
    labels: dict[str, str] = api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]
    return labels.get(_MEMORY)


def test_the_memory_of_the_host_less_a_reserve_is_what_kai_may_share_on_its_node(
    stack: Stack, api: httpx2.Client, machine: Machine
) -> None:
    stack.preview()
    assert _label(api) is None
    stack.up()
    assert _label(api) == str(JETSON_MEMORY_MIB - 2048)
    assert 'mode = "csv"' in machine.path(TOOLKIT_CONFIG).read_text(encoding="utf-8")


def test_a_second_up_changes_nothing(stack: Stack) -> None:
    assert stack.up().changed == frozenset()


def test_a_contradiction_between_stack_and_host_names_both_and_changes_nothing(
    stack: Stack, api: httpx2.Client, machine: Machine
) -> None:
    good, configured = stack.settings, content(machine.root)
    stack.settings = changed(good, "platform.tegra_nodes.jetson-1.gpu_memory_mib", JETSON_MEMORY_MIB * 2)
    output = stack.up(expect=1).output
    assert str(JETSON_MEMORY_MIB * 2) in output
    assert str(JETSON_MEMORY_MIB) in output
    assert _label(api) == str(JETSON_MEMORY_MIB - 2048)
    assert content(machine.root) == configured
    stack.settings = good


def test_a_declared_value_wins(stack: Stack, api: httpx2.Client) -> None:
    stack.settings = changed(stack.settings, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 40960)
    stack.up()
    assert _label(api) == "40960"


def test_destroy_gives_node_and_host_back(
    stack: Stack, api: httpx2.Client, machine: Machine, before: dict[str, str]
) -> None:
    stack.destroy()
    assert content(machine.root) == before
    assert _label(api) is None
    assert stack.resources() == []
