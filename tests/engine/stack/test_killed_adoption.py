"""A run that is killed while it takes over what is there already: what was somebody's stays his, whatever comes next.

One stack, which the tests below take through its life in their order.
"""

from typing import Any

import httpx2
import pytest

import simulator
from cluster.ownership.giving_back import DESTROYS
from operations import engine
from operations.errors import OperationError
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.simulated import stack_settings
from testbed.stacks import Json, changed, jetson, parse
from testbed.waiting import eventually
from tests.support.helm_hooks import held, with_hooks

_NAMESPACE = "/api/v1/namespaces/gpu-operator"
_NODE = "/api/v1/nodes/jetson-1"
_MEMORY = "nvidia.com/gpu.memory"


@pytest.fixture(scope="module")
def before(api: httpx2.Client) -> Any:  # noqa: ANN401 - JSON
    """The namespace that somebody made, beside a label that somebody gave."""
    metadata = {"name": "gpu-operator", "labels": {"team": "robots"}}
    created_by = {"fieldManager": "kubectl-create"}
    api.post("/api/v1/namespaces", params=created_by, json={"metadata": metadata}).raise_for_status()
    api.post(f"{_NAMESPACE}/secrets", params=created_by, json={"metadata": {"name": "site"}}).raise_for_status()
    _change(api, _NODE, {"metadata": {"labels": {_MEMORY: "30000"}}})
    return _marks(api, _NAMESPACE)


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    cluster: simulator.ControlPlane,
    engine_environment: dict[str, str],
    before: Json,
) -> Stack:
    """A stack that adopts both, and whose releases wait for a hook of theirs as long as a test says."""
    assert before
    folder = tmp_path_factory.mktemp("killed")
    settings = with_hooks(stack_settings(jetson(), cluster), folder)
    settings = changed(settings, "cluster.adopt", ["Namespace/gpu-operator", "Node/jetson-1"])
    return Stack(folder / "stack", settings, engine_environment)


def test_down_says_what_it_can_not_see_and_changes_nothing(stack: Stack, api: httpx2.Client, before: Json) -> None:
    half_done = {"labelSelector": "owner=helm,status=pending-install"}
    with held(api), stack.up_until_killed():
        eventually(lambda: api.get(f"{_NAMESPACE}/secrets", params=half_done).json()["items"], within_seconds=180)
    assert _marks(api, _NAMESPACE) != before
    stack.run("cancel", "--yes")
    target = Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ())
    there, resources = inventory(api), stack.resources()
    with pytest.raises(OperationError, match="was making gpu-operator, or is at work"):
        engine.destroy(target, "--yes", "--skip-preview")
    assert stack.resources() == resources
    assert there - inventory(api) == set()


def test_what_it_adopted_stays_its_owners_though_its_marks_were_taken_off_before_a_refresh(
    stack: Stack, api: httpx2.Client, before: Json
) -> None:
    # As `kubectl replace` does with a manifest of its own.
    for path in (_NAMESPACE, _NODE):
        _change(api, path, {"metadata": {"annotations": None}})
    stack.refresh()
    stack.environment[DESTROYS] = "true"
    stack.run("destroy", "--yes", "--skip-preview", "--run-program")
    assert _marks(api, _NAMESPACE) == before
    assert api.get(f"{_NAMESPACE}/secrets/site").status_code == httpx2.codes.OK
    assert api.get(_NODE).json()["metadata"]["labels"][_MEMORY] == "30000"


def _change(api: httpx2.Client, path: str, patch: Json) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    api.patch(path, params={"fieldManager": "kubectl-edit"}, json=patch, headers=headers).raise_for_status()


def _marks(api: httpx2.Client, path: str) -> Any:  # noqa: ANN401 - JSON
    """Its labels and annotations, as everybody may write them."""
    metadata = api.get(path).raise_for_status().json()["metadata"]
    return {field: metadata.get(field, {}) for field in ("labels", "annotations")}
