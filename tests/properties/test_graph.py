"""What random settings register: without an error, by Kubernetes' rules, within the policies, the same every time."""

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest
from hypothesis import given

from manifests.admission import SETTINGS
from policy.stack_platform import stack_facts
from testbed.stacks import Json, jetson, parse, webhook, x86
from tests.policy.objects import findings
from tests.properties import judges
from tests.properties.graphs import graph_of
from tests.properties.runs import examples
from tests.properties.stacks import stacks
from tests.support.recording_monitor import Graph

_ENFORCE = ("metadata", "labels", "pod-security.kubernetes.io/enforce")
_SOCKETS = ("/var/lib/kubelet/device-plugins", "/var/snap/microk8s/common/var/lib/kubelet/device-plugins")
_BY_DESIGN: dict[tuple[str, judges.Path], tuple[object, ...]] = {
    ("Namespace:gpu-operator-namespace", _ENFORCE): ("privileged",),
    ("Namespace:gvirtus-frontends-namespace", _ENFORCE): ("privileged",),
    ("DaemonSet:gvirtus-device-plugin", ("spec", "template", "spec", "volumes", 0, "hostPath")): tuple(
        {"path": folder, "type": "Directory"} for folder in _SOCKETS
    ),
}
"""Power that an x86 stack gives, by somebody else's design: docs/policy.md lists the same as exceptions."""


@pytest.fixture(autouse=True, scope="module")
def _agents_are_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@examples(60)
@given(stacks())
def test_random_settings_register_what_kubernetes_takes_and_what_policies_pass_or_ask_a_setting_for(
    stack: Json,
) -> None:
    """Both of the same graphs: to make one takes longer than to judge it."""
    graph = graph_of(stack)
    assert len(graph.registrations) > (2 if stack.get("installs") == "hosts" else 10)
    assert [*judges.wrong_names(graph), *judges.wrong_metadata(graph), *judges.wrong_objects(graph)] == []
    facts = stack_facts(json.dumps(stack), {})
    rules = {
        finding.rule
        for registered in graph.registrations
        for finding in findings(registered.type, dict(registered.inputs), facts)
    }
    # A range of versions is a finding of its own.
    rules -= {"helm"} if "~0.18.0" in json.dumps(stack) else set()
    if facts.problem is None:
        assert rules == set()
    else:
        # A folder that is none of drivers or devices is granted by no setting.
        assert "_path" in facts.problem
        assert rules <= {"privileged", "host-paths", "devices"}


@examples(40)
@given(stacks("x86"))
def test_x86_settings_give_no_power_over_a_node_anywhere(stack: Json) -> None:
    for key, path, value in judges.powers(graph_of(stack)):
        assert value in _BY_DESIGN.get((key, path), ()), (key, path)


@examples(10)
@given(stacks())
def test_random_settings_register_the_same_again_and_after_they_were_written_and_read(stack: Json) -> None:
    first = _lasting(graph_of(stack))
    assert _lasting(graph_of(stack)) == first
    assert _lasting(graph_of(parse(stack).model_dump(mode="json", exclude_unset=True))) == first


def _lasting(graph: Graph) -> list[Any]:
    """Everything registered, without an authority, which is made anew and then kept, and without what is new each time.

    That is the text of a check of a host where every `up` asks.
    """
    return [
        (
            registration.key,
            registration.type,
            registration.parent,
            registration.provider,
            registration.dependencies,
            {
                name: value
                for name, value in _comparable(registration.inputs).items()
                if name not in registration.ignored and (name, registration.key[-6:]) != ("create", "-check")
            },
            registration.retained,
        )
        for registration in sorted(graph.registrations, key=lambda registration: registration.key)
    ]


def _comparable(inputs: Any) -> Any:  # noqa: ANN401 - JSON and files
    match inputs:
        # Pulumi compares files by identity.
        case pulumi.FileAsset():
            return pulumi.FileAsset, inputs.path
        case dict():
            return {key: _comparable(value) for key, value in inputs.items() if key != "caBundle"}
        case list():
            return [_comparable(item) for item in inputs]
        case _:
            return inputs


def _powerful(stack: Json) -> set[str]:
    return {key for key, path, value in judges.powers(graph_of(stack)) if value not in _BY_DESIGN.get((key, path), ())}


def test_the_judge_of_power_finds_what_jetsons_are_given_in_expressions_and_in_texts() -> None:
    assert _powerful(x86()) == set()
    namespace = "Namespace:reservation-namespace"
    assert _powerful(jetson()) == {namespace, "MutatingAdmissionPolicy:reservation-policy"}
    assert _powerful(webhook()) == {namespace, f"ConfigMap:admission-{SETTINGS}"}
