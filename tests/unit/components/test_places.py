"""What moved in a program is not made twice."""

from collections.abc import Set as AbstractSet

import pytest

from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from components.places import at_one_place, refuse_a_second
from config.stack import StackConfigError
from testbed.stacks import jetson, parse
from tests.support.recording_monitor import Graph, record
from tests.unit.components.programs import CLUSTER_UID, KUBECONFIG

_TOP = "urn:pulumi:prod::fleet::kai-anywhere:index:KaiAnywhere"
_BELOW = "$kai-anywhere:index:GpuOperator$kubernetes:core/v1:Namespace::gpu-operator-namespace"
_URNS = frozenset({f"{_TOP}::gpus", f"{_TOP}{_BELOW}"})
_MOVED = f"{_TOP.replace('kai-anywhere:index', 'team:index:Platform$kai-anywhere:index')}{_BELOW}"


def test_what_the_stack_has_at_another_place_is_refused_with_the_alias_that_moves_it() -> None:
    with pytest.raises(StackConfigError) as caught:
        refuse_a_second("gpus", _MOVED, _URNS)
    assert "'gpus' stands at another place" in str(caught.value)
    assert "gpu-operator-namespace would be made twice" in str(caught.value)
    assert str(caught.value).endswith(f"aliases: ['{_TOP}::gpus']")


@pytest.mark.parametrize(
    "urn",
    [
        f"{_TOP}{_BELOW}",
        f"{_TOP}{_BELOW.replace('gpu-operator-namespace', 'kai-scheduler-namespace')}",
        f"{_TOP}{_BELOW.replace('Namespace', 'ConfigMap')}",
    ],
    ids=["the-same-again-after-a-refresh", "another-name", "another-type"],
)
def test_everything_else_is_made(urn: str) -> None:
    refuse_a_second("gpus", urn, _URNS)


def _hooks(urns: AbstractSet[str]) -> Graph:
    settings = parse(jetson())
    args = KaiAnywhereArgs(settings, CLUSTER_UID, KUBECONFIG)
    return record(lambda: KaiAnywhere("gpus", args, at_one_place("gpus", urns)))


def test_each_resource_of_a_stack_that_has_some_is_asked_about_before_it_is_made() -> None:
    assert {registration.hooks for registration in _hooks(frozenset()).registrations} == {()}
    asked = {registration.type.rpartition(":")[2]: registration.hooks for registration in _hooks(_URNS).registrations}
    assert {kind for kind, hooks in asked.items() if hooks == ("make nothing twice for gpus",)} >= {
        "Namespace",
        "NodePatch",
        "Queue",
        "Release",
    }
    assert asked["KaiAnywhere"] == asked["kubernetes"] == ()
