"""A namespace of the stack's that was deleted by hand, and that somebody else made again: it is his."""

from collections.abc import Callable

import httpx2
import pytest

from operations import engine
from operations.errors import OperationError
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import inventory, left_behind
from testbed.stacks import Json, jetson, parse
from testbed.waiting import eventually
from tests.support.rollback import rollback_of

_NAMESPACE = "/api/v1/namespaces/kai-scheduler"


def test_neither_up_nor_down_takes_it(
    new_stack: Callable[[Json], Stack], api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stack = inventory(api), new_stack(jetson())
    stack.up()
    api.delete(_NAMESPACE).raise_for_status()
    eventually(lambda: api.get(_NAMESPACE).status_code == httpx2.codes.NOT_FOUND, within_seconds=120)
    by_hand = {"fieldManager": "kubectl-create"}
    api.post("/api/v1/namespaces", params=by_hand, json={"metadata": {"name": "kai-scheduler"}}).raise_for_status()
    api.post(f"{_NAMESPACE}/secrets", params=by_hand, json={"metadata": {"name": "site"}}).raise_for_status()
    says = "namespace 'kai-scheduler', which this stack made, was deleted, and made again by others (kubectl-create)"
    for options in ((), ("--refresh",)):
        refused = stack.up(*options, expect=None)
        assert refused.code != 0
        assert says in refused.output
    target = Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ())
    with pytest.raises(OperationError) as caught:
        engine.destroy(target, "--yes", "--skip-preview")
    assert says in str(caught.value)
    assert api.get(f"{_NAMESPACE}/secrets/site").is_success
    [urn] = [resource["urn"] for resource in stack.resources() if resource["urn"].endswith("::kai-scheduler-namespace")]
    stack.run("state", "delete", urn, "--target-dependents", "--yes")
    rollback_of(stack, monkeypatch)()
    assert stack.resources() == []
    # What Helm made outside of the namespace too, with the webhooks that KAI's Config kept.
    eventually(lambda: left_behind(api, before) == {"Namespace//kai-scheduler", "Secret/kai-scheduler/site"})
