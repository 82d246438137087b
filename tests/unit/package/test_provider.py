"""The package registers what the program registers, and nothing where settings are wrong."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult

from components import tokens
from components.hosts.secrets import _usable, read_host_secrets
from config.stack import StackConfigError
from package.provider import KaiAnywherePackage, _host_secrets
from testbed.stacks import Json, changed, jetson, parse, x86
from tests.support.hosts.settings import full_host, jetson_with_host
from tests.support.recording_monitor import Graph, record
from tests.unit.components.programs import preview


def _as_sent(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Numbers as the engine hands them over."""
    match value:
        case bool() | str() | None:
            return value
        case int():
            return float(value)
        case list():
            return [_as_sent(item) for item in value]
        case _:
            return {key: _as_sent(item) for key, item in value.items()}


def _construct(settings: object, token: str = tokens.KAI_ANYWHERE) -> tuple[Graph, list[ConstructResult]]:
    made: list[ConstructResult] = []

    def program() -> None:
        made.append(KaiAnywherePackage().construct("kai-anywhere", token, {"settings": settings}))

    return record(program, state={"outputs": {}}), made


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster, so that a preview goes on without one."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("stack", [jetson(), x86(), changed(jetson(), "validation", "after_up")])
def test_the_component_registers_what_the_program_does(stack: Json) -> None:
    graph, [made] = _construct(_as_sent(stack))
    program = preview(stack, cluster_uid=None)
    assert {(registration.key, registration.parent) for registration in graph.registrations} == {
        (registration.key, registration.parent) for registration in program.registrations
    }
    for key, registration in program.by_key.items():
        assert graph.by_key[key].inputs == registration.inputs, key
    assert made.state.keys() == program.outputs["KaiAnywhere:kai-anywhere"].keys()


def _refused(settings: object, token: str = tokens.KAI_ANYWHERE) -> str:
    graph = []

    def program() -> None:
        with pytest.raises(InputPropertiesError) as caught:
            KaiAnywherePackage().construct("gpus", token, {} if settings is None else {"settings": settings})
        graph.append(caught.value.message)

    assert record(program, state={"outputs": {}}).registrations == []
    return graph[0]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (changed(jetson(), "kai.cdi_enable", True), "the component 'gpus': 1 setting is wrong"),
        (changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 28.0), "28 looks like GB"),
        (changed(jetson(), "kai.chart", {"source": "./nowhere"}), "neither a chart folder"),
        (None, "Pulumi.test.yaml: the key kai-anywhere:settings is missing, so the stack has no settings"),
        (changed(jetson(), "kai.namespace", pulumi.output.UNKNOWN), "settings.kai.namespace is another resource's"),
    ],
)
def test_nothing_is_registered_where_a_setting_is_wrong(settings: object, says: str) -> None:
    assert re.search(re.escape(says), _refused(settings))


def test_an_output_among_the_settings_is_named_with_its_place() -> None:
    def program() -> None:
        settings = changed(jetson(), "node_profiles.p", {"sharing": "kai", "nodes": [pulumi.Output.secret("gpu-1")]})
        with pytest.raises(InputPropertiesError, match=re.escape("settings.node_profiles.p.nodes[0] is another")):
            KaiAnywherePackage().construct("gpus", tokens.KAI_ANYWHERE, {"settings": settings})

    record(program)


def test_another_type_is_refused_with_the_one_there_is() -> None:
    assert tokens.KAI_ANYWHERE in _refused(jetson(), tokens.GPU_OPERATOR)


@pytest.mark.usefixtures("nowhere")
def test_a_stack_takes_one_component_and_the_same_again_is_the_same() -> None:
    def program() -> None:
        provider = KaiAnywherePackage()
        for settings in (changed(jetson(), "kai.cdi_enable", True), jetson()):
            with suppress(InputPropertiesError):
                provider.construct("gpus", tokens.KAI_ANYWHERE, {"settings": settings})
        with pytest.raises(InputPropertiesError) as caught:
            provider.construct("two", tokens.KAI_ANYWHERE, {"settings": jetson()})
        assert "'two' is the second kai-anywhere:index:KaiAnywhere of this stack, beside 'gpus'" in caught.value.message

    graph = record(program, state={"outputs": {}})
    assert "KaiAnywhere:gpus" in graph.by_key
    assert "KaiAnywhere:two" not in graph.by_key


@pytest.mark.usefixtures("nowhere")
def test_without_settings_those_of_the_callers_stack_file_hold() -> None:
    made: list[ConstructResult] = []

    def program() -> None:
        pulumi.runtime.set_all_config({"kai-anywhere:settings": json.dumps(jetson())})
        made.append(KaiAnywherePackage().construct("kai-anywhere", tokens.KAI_ANYWHERE, {}))

    graph = record(program, state={"outputs": {}})
    assert {registration.key for registration in graph.registrations} == {
        registration.key for registration in preview(jetson(), cluster_uid=None).registrations
    }
    assert len(made) == 1


def test_a_secret_inside_of_the_callers_settings_is_refused() -> None:
    def program() -> None:
        key = "kai-anywhere:settings"
        pulumi.runtime.set_all_config({key: json.dumps(jetson())}, [key])
        with pytest.raises(InputPropertiesError, match=r"a secret stands inside of kai-anywhere:settings"):
            KaiAnywherePackage().construct("kai-anywhere", tokens.KAI_ANYWHERE, {})

    assert record(program).registrations == []


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("main", [".", "src"])
def test_the_callers_stack_file_may_build_upon_a_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str
) -> None:
    (tmp_path / "bases").mkdir()
    base = {"config": {"kai-anywhere:settings": jetson()}}
    (tmp_path / "bases" / "jetson.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / main).mkdir(exist_ok=True)
    # The engine starts the package where the caller's program runs, and tells it no other folder.
    monkeypatch.chdir(tmp_path / main)
    monkeypatch.setattr(pulumi, "get_root_directory", lambda: None)

    def program() -> None:
        said = {"kai-anywhere:settings": "{}", "kai-anywhere:base": "bases/jetson.yaml"}
        pulumi.runtime.set_all_config(said)
        KaiAnywherePackage().construct("kai-anywhere", tokens.KAI_ANYWHERE, {})

    graph = record(program, state={"outputs": {}})
    assert {registration.key for registration in graph.registrations} == {
        registration.key for registration in preview(jetson(), cluster_uid=None).registrations
    }


class TestHostSecrets:
    """Secrets of hosts as inputs."""

    _VALUE = "hunter-2"

    def _given(self, given: Callable[[], object], config: Json | None = None) -> tuple[dict[str, str], str]:
        """What is read of `host_secrets`, and of the project's configuration; or the refusal."""
        read: dict[str, str] = {}
        refused: list[str] = []

        def note(values: dict[str, str]) -> None:
            read.update(values)

        def program() -> None:
            pulumi.runtime.set_all_config(config or {}, list(config or {}))
            try:
                values = read_host_secrets(parse(jetson_with_host(full_host())).hosts, _host_secrets(given()))
            except InputPropertiesError as error:
                refused.append(error.message)
            except StackConfigError as error:
                refused.append(str(error))
            else:
                pulumi.Output.all(**values).apply(note)

        record(program)
        return read, "".join(refused)

    def test_those_given_are_used_and_the_others_stand_in_the_configuration(self) -> None:
        others = {f"kai-anywhere:{name}": f"{name} of the file" for name in self._names() if name != "lab-sudo"}
        read, refused = self._given(lambda: {"lab-sudo": pulumi.Output.secret(self._VALUE)}, others)
        assert refused == ""
        assert read["lab-sudo"] == self._VALUE
        assert read["lab-key"] == "lab-key of the file"
        assert read.keys() == self._names()

    def test_one_that_no_host_names_is_refused_with_the_names_there_are(self) -> None:
        names = (*self._names(), "lab-keys")
        read, refused = self._given(lambda: {name: pulumi.Output.secret(self._VALUE) for name in names})
        assert "host_secrets.lab-keys is not read by anything: the hosts name " in refused
        assert "lab-key," in refused
        assert "Nothing was changed." in refused
        assert (read, self._VALUE in refused) == ({}, False)

    def test_a_missing_one_is_told_with_both_ways_to_give_it(self) -> None:
        read, refused = self._given(lambda: {"lab-sudo": pulumi.Output.secret(self._VALUE)})
        assert "pulumi config set --secret lab-key" in refused
        assert "or give it: host_secrets.lab-key" in refused
        assert "host_secrets.lab-sudo" not in refused
        assert (read, self._VALUE in refused) == ({}, False)

    @pytest.mark.parametrize("given", [{"lab-sudo": _VALUE}, pulumi.output.UNKNOWN, [_VALUE]])
    def test_plain_text_and_unknown_names_are_refused_without_the_value(self, given: object) -> None:
        read, refused = self._given(lambda: given)
        assert "host_secrets" in refused
        assert (read, self._VALUE in refused) == ({}, False)

    @pytest.mark.parametrize(("value", "says"), [("", "is empty"), ("one\ntwo", "has several lines")])
    def test_a_value_that_can_not_be_one_never_reaches_a_host(self, value: str, says: str) -> None:
        with pytest.raises(StackConfigError, match=says):
            _usable("lab-sudo", value, one_line=True)
        assert _usable("lab-key", "one\ntwo", one_line=False) == "one\ntwo"

    def test_they_are_secrets_in_the_state(self) -> None:
        secret: list[bool] = []

        async def look(output: pulumi.Output[str]) -> None:
            secret.append(await output.is_secret())

        def program() -> pulumi.Output[None]:
            values = _host_secrets({"lab-sudo": pulumi.Output.secret(self._VALUE)})
            return pulumi.Output.from_input(look(values["lab-sudo"]))

        record(program)
        assert secret == [True]

    @staticmethod
    def _names() -> set[str]:
        return {name for host in parse(jetson_with_host(full_host())).hosts.values() for name in host.secret_names}
