"""The package registers what the program registers, and nothing where settings are wrong."""

import re
from typing import Any

import pulumi
import pytest
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult

from components import tokens
from package.provider import KaiAnywherePackage
from testbed.stacks import Json, changed, jetson, x86
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
            return [_as_sent(each) for each in value]
        case _:
            return {key: _as_sent(each) for key, each in value.items()}


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
    assert {(each.key, each.parent) for each in graph.registrations} == {
        (each.key, each.parent) for each in program.registrations
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
        (None, "has no settings"),
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
