"""What hosts register: after what, with which connection, and what never appears."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import rpc

from components.hosts.agent import build_host_agent
from components.hosts.secrets import read_host_secrets
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from config.stack import StackConfigError
from testbed.stacks import Json, changed, jetson, parse
from tests.support.hosts.answers import jetson_answer, spark_answer, x86_answer
from tests.support.hosts.settings import (
    HOST_KEY,
    full_host,
    jetson_with_host,
    local_host,
    mixed_with_hosts,
    ssh_host,
    x86_with_host,
)
from tests.support.recording_monitor import Graph, record
from tests.unit.components.programs import KUBECONFIG

_SECRETS = {name: f"the value of {name}" for name in ("lab-key", "lab-key-password", "jump-login", "lab-sudo")}
_JETSON = changed(jetson_answer(), "gpus", [jetson_answer()["gpus"][0] | {"memory_mib": 131072}])
_PRINTED = {
    "hosts-jetson-1-probe": json.dumps(changed(_JETSON, "memory.total_mib", 131072)),
    "hosts-spark-1-probe": json.dumps(changed(spark_answer(), "kubernetes.distribution", "kubeadm")),
    "hosts-gpu-1-probe": json.dumps(x86_answer()),
}


@pytest.fixture(autouse=True)
def _agents_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def graph_of_hosts(stack: Json, *, first: bool = False, state: Mapping[str, Any] | None = None) -> Graph:
    """A preview of a stack: its first, or one after an `up`, when hosts have answered."""
    settings = parse(stack)

    def program() -> None:
        secrets = {name: pulumi.Output.secret(value) for name, value in _SECRETS.items()}
        KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, "a-cluster", KUBECONFIG, secrets))

    return record(program, deployed=not first, printed=_PRINTED, state=state)


def _labels(graph: Graph, node: str) -> Mapping[str, str]:
    labels: Mapping[str, str] = graph.by_key[f"NodePatch:node-labels-{node}"].inputs["metadata"]["labels"]
    return labels


def test_a_stack_without_hosts_registers_nothing_of_them() -> None:
    graph = graph_of_hosts(jetson(), first=True)
    assert not [token for token in graph.types if token.startswith(("command:", "kai-anywhere:index:Host"))]


def test_a_host_is_copied_to_then_asked_then_configured() -> None:
    graph = graph_of_hosts(jetson_with_host(), first=True)
    assert graph.below("Hosts:hosts") == {"Host:hosts-jetson-1"}
    copied, probe, configured = (
        "CopyToRemote:hosts-jetson-1-agent",
        "Command:hosts-jetson-1-probe",
        "Command:hosts-jetson-1-configured",
    )
    assert graph.below("Host:hosts-jetson-1") == {copied, probe, configured}
    assert graph.by_key[copied].dependencies == set()
    assert graph.by_key[probe].dependencies == {copied}
    assert graph.by_key[configured].dependencies == {copied, probe}


def test_a_host_without_ssh_gets_no_copy_and_no_connection() -> None:
    graph = graph_of_hosts(jetson_with_host(local_host()), first=True)
    assert graph.below("Host:hosts-jetson-1") == {
        "Command:hosts-jetson-1-probe",
        "Command:hosts-jetson-1-configured",
    }
    assert {token for token in graph.types if token.startswith("command:")} == {"command:local:Command"}
    assert "connection" not in graph.by_key["Command:hosts-jetson-1-probe"].inputs
    assert build_host_agent().path in graph.by_key["Command:hosts-jetson-1-probe"].inputs["create"]


def test_hosts_wait_for_no_other_host_and_everything_else_waits_for_all() -> None:
    graph = graph_of_hosts(mixed_with_hosts(), first=True)
    configured = {f"Command:hosts-{node}-configured" for node in ("jetson-1", "spark-1", "gpu-1")}
    for node in ("jetson-1", "spark-1", "gpu-1"):
        others = {
            key
            for name in ("jetson-1", "spark-1", "gpu-1")
            if name != node
            for key in graph.below(f"Host:hosts-{name}")
        }
        for key in graph.below(f"Host:hosts-{node}"):
            assert not graph.by_key[key].dependencies & others
    for key in ("NodePatch:node-labels-jetson-1", "NodePatch:node-labels-spark-1"):
        assert configured <= graph.by_key[key].dependencies
    for key in ("GpuOperator:gpu-operator", "ReservationOverrides:reservation", "KaiScheduler:kai-scheduler"):
        assert configured <= graph.by_key[key].dependencies


def test_a_first_preview_knows_the_commands_and_not_the_answers() -> None:
    graph = graph_of_hosts(jetson_with_host(), first=True)
    assert graph.by_key["Command:hosts-jetson-1-configured"].inputs["create"].startswith("exec sh -c")
    assert "nvidia.com/gpu.memory" in _labels(graph, "jetson-1")
    assert _labels(graph, "jetson-1")["nvidia.com/gpu.memory"] == rpc.UNKNOWN


def test_labels_hold_what_the_host_said_unless_it_is_declared() -> None:
    graph = graph_of_hosts(mixed_with_hosts())
    assert _labels(graph, "spark-1")["nvidia.com/gpu.memory"] == str(124610 - 2048)
    declared = changed(mixed_with_hosts(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 32768)
    assert _labels(graph_of_hosts(declared), "jetson-1")["nvidia.com/gpu.memory"] == "32768"


def test_a_discrete_gpus_memory_is_nobodys_label_of_ours() -> None:
    profile = {"sharing": "kai", "nodes": ["gpu-1"]}
    graph = graph_of_hosts(changed(mixed_with_hosts(), "node_profiles", {"fractions": profile}))
    assert _labels(graph, "gpu-1") == {"nvidia.com/device-plugin.config": "fractions"}


def test_the_connection_is_pinned_bounded_and_goes_through_the_bastion() -> None:
    inputs = graph_of_hosts(jetson_with_host(full_host()), first=True).by_key["Command:hosts-jetson-1-probe"].inputs
    assert rpc.is_rpc_secret(inputs["connection"]), "the whole connection must be a secret"
    connection = rpc.unwrap_rpc_secret(inputs["connection"])
    assert (connection["host"], connection["port"], connection["user"]) == ("192.0.2.21", 2222, "ubuntu")
    assert connection["hostKey"] == connection["proxy"]["hostKey"] == HOST_KEY
    assert connection["dialErrorLimit"] == connection["proxy"]["dialErrorLimit"] == 60
    assert connection["perDialTimeout"] == connection["proxy"]["perDialTimeout"] == 15
    assert connection["privateKey"] == "the value of lab-key"
    assert connection["privateKeyPassword"] == "the value of lab-key-password"
    assert connection["proxy"]["password"] == "the value of jump-login"
    assert "password" not in connection
    assert "privateKey" not in connection["proxy"]


@pytest.mark.parametrize("host", [full_host(), local_host(sudo_password_secret="lab-sudo")])
def test_no_command_holds_a_secret_and_its_output_is_one(host: Json) -> None:
    graph = graph_of_hosts(jetson_with_host(host))
    commands = [registered for registered in graph.registrations if registered.key.startswith("Command:")]
    assert len(commands) == (3 if "check" in host else 2)
    for command in commands:
        texts = [command.inputs.get(key, "") for key in ("create", "update", "delete")]
        assert not [value for value in _SECRETS.values() if value in "".join(texts)]
        assert "environment" not in command.inputs
        assert command.inputs["addPreviousOutputInEnv"] is False
        assert command.inputs["logging"] == "none"
        assert {"stdout", "stderr"} <= command.secret_outputs
        assert "triggers" not in command.inputs


def test_stdin_is_the_sudo_password_and_the_document_in_one_line_each() -> None:
    graph = graph_of_hosts(jetson_with_host(full_host()))
    stdin = graph.by_key["Command:hosts-jetson-1-configured"].inputs["stdin"]
    assert rpc.is_rpc_secret(stdin)
    password, document, nothing = rpc.unwrap_rpc_secret(stdin).split("\n")
    assert password == "the value of lab-sudo"
    assert json.loads(document)["platform"] == "tegra"
    assert nothing == ""
    probes = graph.by_key["Command:hosts-jetson-1-probe"].inputs["stdin"]
    assert rpc.is_rpc_secret(probes)
    assert rpc.unwrap_rpc_secret(probes) == "the value of lab-sudo\n", "its deletion needs sudo, and no document"
    without_sudo = graph_of_hosts(jetson_with_host())
    plain = without_sudo.by_key["Command:hosts-jetson-1-configured"].inputs["stdin"]
    assert json.loads(plain)["platform"] == "tegra"
    assert "stdin" not in without_sudo.by_key["Command:hosts-jetson-1-probe"].inputs


def test_what_gives_a_host_back_is_in_the_state_before_anything_changes_there() -> None:
    graph = graph_of_hosts(jetson_with_host(full_host()), first=True)
    probe, configured = (f"Command:hosts-jetson-1-{name}" for name in ("probe", "configured"))
    assert {registered.key for registered in graph.registrations if "delete" in registered.inputs} == {probe}
    assert probe in graph.by_key[configured].dependencies


def test_the_same_stack_gives_the_same_inputs_unless_every_up_asks() -> None:
    def inputs(stack: Json) -> dict[str, Mapping[str, Any]]:
        return {
            key: {name: value for name, value in registered.inputs.items() if name != "source"}
            for key, registered in graph_of_hosts(stack).by_key.items()
            if "hosts-" in key
        }

    assert inputs(jetson_with_host()) == inputs(jetson_with_host())
    before, after = inputs(jetson_with_host(full_host())), inputs(jetson_with_host(full_host()))
    assert {key for key in before if before[key] != after[key]} == {"Command:hosts-jetson-1-check"}


@pytest.mark.parametrize("made", [(), ("agent", "probe"), ("agent", "probe", "configured")])
def test_a_host_that_is_gone_is_kept_as_it_is_if_it_was_ever_reached(made: tuple[str, ...]) -> None:
    stack = changed(jetson_with_host(ssh_host(gone=True)), "platform.tegra_nodes.jetson-1", {"gpu_memory_mib": 32768})
    urns = [f"urn:pulumi:test::kai-anywhere::command:remote:Command::hosts-jetson-1-{name}" for name in made]
    state = {"outputs": {urn: {"type": "command:remote:Command", "outputs": {}} for urn in urns}}
    graph = graph_of_hosts(stack, state=state)
    kept = {f"Command:hosts-jetson-1-{name}" for name in made if name != "agent"}
    assert graph.below("Host:hosts-jetson-1") == kept
    for command in (graph.by_key[key] for key in kept):
        assert command.retained
        assert command.ignored == {"*"}
        assert command.key not in graph.by_key["NodePatch:node-labels-jetson-1"].dependencies
    assert _labels(graph, "jetson-1")["nvidia.com/gpu.memory"] == "32768"


def test_an_agent_that_can_not_be_kept_is_an_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(pulumi.RunError, match=r"can't be kept in .*: Not a directory\. .* set XDG_DATA_HOME"):
        build_host_agent()


def test_the_agent_is_the_same_file_every_time_and_starts_with_its_launcher() -> None:
    first, second = build_host_agent(), build_host_agent()
    assert first == second
    content = Path(first.path).read_bytes()
    assert content.startswith(b"#!/bin/sh\n")
    Path(first.path).write_bytes(b"damaged")
    assert build_host_agent() == first
    assert Path(first.path).read_bytes() == content
    assert [path.name for path in Path(first.path).parent.iterdir()] == [Path(first.path).name]


class TestSecrets:
    """Looked up by name, before anything is registered."""

    @staticmethod
    def _read(config: Mapping[str, str], *, secret: bool = True, host: Json | None = None) -> set[str]:
        keys = {f"kai-anywhere:{name}": value for name, value in config.items()}
        settings = parse(host or jetson_with_host(full_host()))
        names: list[str] = []

        def program() -> None:
            pulumi.runtime.set_all_config(keys, list(keys) if secret else [])
            names.extend(read_host_secrets(settings.hosts))

        record(program)
        return set(names)

    def test_every_secret_of_a_host_is_read(self) -> None:
        assert self._read(_SECRETS) == {*_SECRETS}

    def test_one_that_is_not_set_is_told_with_the_command_that_sets_it(self) -> None:
        with pytest.raises(StackConfigError) as caught:
            self._read({"lab-key": "a"})
        text = str(caught.value)
        assert "Nothing was changed." in text
        assert "kai-anywhere:lab-sudo is not set, and host 'jetson-1' needs it" in text
        assert "pulumi config set --secret lab-sudo" in text
        assert "kai-anywhere:lab-key " not in text

    def test_one_in_plain_text_is_refused_and_not_printed(self) -> None:
        with pytest.raises(StackConfigError) as caught:
            self._read(_SECRETS, secret=False)
        assert "kai-anywhere:lab-key stands in the stack file in plain text" in str(caught.value)
        assert "the value of" not in str(caught.value)

    def test_a_sudo_password_of_several_lines_is_refused(self) -> None:
        with pytest.raises(StackConfigError, match="a sudo password has one"):
            self._read(_SECRETS | {"lab-sudo": "one\ntwo"})

    def test_a_host_that_is_gone_needs_none(self) -> None:
        stack = changed(
            jetson_with_host(ssh_host(gone=True)), "platform.tegra_nodes.jetson-1", {"gpu_memory_mib": 32768}
        )
        assert self._read({}, host=stack) == set()


def test_what_is_odd_on_a_host_is_told_with_its_name_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(pulumi, "info", lambda text, **_options: lines.append(text))
    before = graph_of_hosts(jetson_with_host())
    assert lines == []
    gap = {"feature": "Longhorn's v1 volumes (iSCSI)", "options": ["CONFIG_ISCSI_TCP"]}
    odd = changed(json.loads(_PRINTED["hosts-jetson-1-probe"]), "kernel.gaps", [gap])
    odd = changed(odd, "libraries.findings", ["/usr/lib/libcuda.so.1 has 0 bytes and is no library"])
    monkeypatch.setitem(_PRINTED, "hosts-jetson-1-probe", json.dumps(odd))
    assert graph_of_hosts(jetson_with_host()).by_key.keys() == before.by_key.keys()
    assert lines[0] == "host 'jetson-1': /usr/lib/libcuda.so.1 has 0 bytes and is no library"
    assert "Longhorn's v1 volumes (iSCSI): CONFIG_ISCSI_TCP" in lines[1]
    assert len(lines) == 2


def test_a_stack_of_hosts_alone_registers_nothing_of_a_cluster() -> None:
    stack = changed(mixed_with_hosts(), "installs", "hosts")
    graph, whole = graph_of_hosts(stack), graph_of_hosts(mixed_with_hosts())
    assert not [registered.type for registered in graph.registrations if "kubernetes" in registered.type]
    assert {registered.type for registered in graph.registrations} == {
        *("kai-anywhere:index:KaiAnywhere", "kai-anywhere:index:Hosts", "kai-anywhere:index:Host"),
        *("command:remote:CopyToRemote", "command:remote:Command", "command:local:Command"),
    }
    for key, registered in graph.by_key.items():
        if not key.endswith("-agent"):  # a file, which is compared by its identity
            assert registered.inputs == whole.by_key[key].inputs, "a host is prepared as in a stack with everything"
    outputs = graph.outputs["KaiAnywhere:kai-anywhere"]
    assert outputs["gpu_memory_mib"] == whole.outputs["KaiAnywhere:kai-anywhere"]["gpu_memory_mib"]
    assert outputs["gpu_memory_mib"].keys() == {"jetson-1", "spark-1"}, "GPU Feature Discovery labels the others"
    assert (outputs["queues"], outputs["tegra_nodes"], "kai_version" in outputs) == ([], [], False)


def test_a_host_that_is_gone_tells_no_memory() -> None:
    stack = changed(changed(jetson_with_host(), "hosts.jetson-1.gone", True), "installs", "hosts")
    graph = graph_of_hosts(stack, state={"outputs": {}})
    assert graph.outputs["KaiAnywhere:kai-anywhere"]["gpu_memory_mib"] == {}


def test_hosts_with_gpus_of_their_own_memory_tell_none() -> None:
    stack = changed(x86_with_host(local_host()), "cluster.distribution", "k3s")
    assert graph_of_hosts(stack).outputs["KaiAnywhere:kai-anywhere"]["gpu_memory_mib"] == {}
