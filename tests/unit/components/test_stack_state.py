"""What the engine remembers of a stack, asked as the program asks it."""

from typing import Any

import pytest
from pydantic import ValidationError

from cluster.ownership.deployed_state import DeployedState
from components.stack_state import read_deployed_names, read_stack_state
from tests.support.recording_monitor import Graph, record


def _resource(token: str, **outputs: object) -> dict[str, Any]:
    return {"type": token, "outputs": outputs}


def _below(*, top: str = "kai-anywhere:index:KaiAnywhere", **resources: dict[str, Any]) -> dict[str, Any]:
    """Resources by their URNs, below a component."""
    return {
        f"urn:pulumi:test::kai-anywhere::{top}${resource['type']}::{name}": resource
        for name, resource in resources.items()
    }


def _read(resources: dict[str, Any]) -> tuple[DeployedState, Graph]:
    read: list[DeployedState] = []
    graph = record(lambda: read.append(read_stack_state()), state={"outputs": resources})
    return read[0], graph


def void(_: DeployedState) -> None:
    """Programs return nothing."""


_STACK = _resource("pulumi:pulumi:Stack")
_PROVIDER = _resource("pulumi:providers:kubernetes", clusterIdentifier="the-cluster", version="4.25.0")


def test_the_engine_is_asked_for_this_stack_and_nothing_is_registered() -> None:
    _, graph = _read({})
    assert graph.asked == [("pulumi:pulumi:readStackResourceOutputs", {"stackName": "organization/kai-anywhere/test"})]
    assert graph.registrations == []


def test_a_new_stack_was_never_deployed() -> None:
    state, _ = _read({})
    assert state == DeployedState()


def test_a_stack_that_was_destroyed_was_never_deployed() -> None:
    state, _ = _read({"urn:pulumi:test::kai-anywhere::pulumi:pulumi:Stack::kai-anywhere-test": _STACK})
    assert not state.deployed


def test_a_deployed_stack_knows_its_cluster_and_its_releases() -> None:
    release = _resource("kubernetes:helm.sh/v3:Release", name="kai-scheduler", namespace="kai", status={"revision": 1})
    state, _ = _read(_below(cluster=_PROVIDER, scheduler=release))
    assert state == DeployedState(
        deployed=True, cluster_uid="the-cluster", releases=frozenset({("kai", "kai-scheduler")})
    )


def test_a_deployed_stack_knows_whose_its_namespaces_are() -> None:
    manager = "kai-anywhere/kai-anywhere/test/admission-namespace"
    metadata = {"name": "kai-anywhere", "annotations": {"pulumi.com/patchFieldManager": manager}}
    namespace = _resource("kubernetes:core/v1:Namespace", __inputs={"kind": "Namespace", "metadata": metadata})
    unsigned = _resource("kubernetes:core/v1:Namespace", __inputs={"kind": "Namespace", "metadata": {"name": "kai"}})
    state, _ = _read(_below(signed=namespace, unsigned=unsigned))
    assert state.objects == {"Namespace/kai-anywhere", "Namespace/kai"}
    assert state.managers == {"Namespace/kai-anywhere": manager}


def test_what_a_teams_own_program_has_in_the_stack_is_not_this_programs() -> None:
    release = _resource("kubernetes:helm.sh/v3:Release", name="kai-scheduler", namespace="kai", status={"revision": 1})
    namespace = _resource("kubernetes:core/v1:Namespace", __inputs={"kind": "Namespace", "metadata": {"name": "kai"}})
    theirs = {"cluster": _PROVIDER, "scheduler": release, "namespace": namespace}
    state, _ = _read({**_below(top="team:index:Platform", **theirs), "urn:pulumi:test::team::a:b:C::alone": _STACK})
    assert state == DeployedState()
    both, _ = _read(_below(top="team:index:Platform$kai-anywhere:index:KaiAnywhere", **theirs))
    assert both.objects == {"Namespace/kai"}


def test_an_answer_of_another_shape_is_not_taken_for_an_empty_stack() -> None:
    with pytest.raises(ValidationError):
        _read(_below(other={"type": "a:b:C"}))


def test_a_checkpoint_that_is_being_written_is_read_again() -> None:
    read: list[DeployedState] = []
    busy = ["failed to load checkpoint: EOF", "failed to load checkpoint: unexpected end of JSON input"]
    state = {"outputs": _below(cluster=_PROVIDER)}
    graph = record(lambda: read.append(read_stack_state()), state=state, refusals=busy)
    assert read == [DeployedState(cluster_uid="the-cluster")]
    assert len(graph.asked) == 3


def test_any_other_refusal_of_the_engine_is_not_tried_again() -> None:
    with pytest.raises(Exception, match="unknown stack"):
        record(lambda: void(read_stack_state()), refusals=["unknown stack", "never asked"])


def test_the_names_of_what_was_deployed_are_read_without_a_look_inside() -> None:
    states: list[frozenset[str]] = []
    urn = "urn:pulumi:test::kai-anywhere::kai-anywhere:index:Host$command:remote:Command::hosts-jetson-1-configured"
    graph = record(lambda: states.append(read_deployed_names()), state={"outputs": {urn: {}}})
    assert states == [frozenset({"hosts-jetson-1-configured"})]
    assert not graph.registrations
