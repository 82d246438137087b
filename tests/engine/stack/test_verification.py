"""`validation: after_up` on a real API server: a stack that works passes, one that was broken by hand fails the up."""

import re
from collections.abc import Callable

import httpx2
import pytest

from testbed.engine import Stack
from testbed.stacks import Json, changed, jetson

_BINDING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/kai-anywhere-reservation-overrides"
_RESERVATION_PODS = "/api/v1/namespaces/kai-resource-reservation/pods"


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """The Jetson stack with the setting, up: so its first up has passed."""
    made = new_stack(changed(jetson(), "validation", "after_up"))
    made.up()
    return made


def test_the_second_up_changes_nothing_and_what_it_asks_about_is_never_there(stack: Stack, api: httpx2.Client) -> None:
    [component] = [resource for resource in stack.resources() if resource["type"].endswith(":Verification")]
    assert "reservation pods to get what the stack says" in component["outputs"]["checked"]
    again = stack.up()
    assert again.changes.keys() == {"same"}
    assert again.changed == frozenset()
    assert api.get(_RESERVATION_PODS).raise_for_status().json()["items"] == []


def test_an_override_that_is_gone_fails_the_up_with_the_ways_out_and_a_refresh_repairs_it(
    stack: Stack, api: httpx2.Client
) -> None:
    api.delete(_BINDING).raise_for_status()
    failed = stack.up(expect=None)
    assert failed.code != 0
    # The engine prints an error in lines of its own.
    text = " ".join(failed.output.split())
    assert "Everything is installed, but does not work as the stack says (validation: after_up)" in text
    [said] = re.findall(r"without success: (.*?) Likely causes", text)
    # Without overrides the guard refuses the pod before anybody can compare it.
    assert "on node 'jetson-1', the cluster refuses them" in said
    assert "this reservation pod was not given its Jetson's driver libraries" in said
    assert "kai-anywhere doctor names the cause" in text
    assert "Traceback" not in failed.output
    assert failed.changed == frozenset()
    assert stack.preview().changes.keys() == {"same"}, "a preview does not look"
    stack.up("--refresh")
    assert stack.up().changes.keys() == {"same"}


def test_a_stack_that_does_not_work_can_be_destroyed(stack: Stack, api: httpx2.Client) -> None:
    api.delete(_BINDING).raise_for_status()
    stack.destroy()
    assert stack.resources() == []
