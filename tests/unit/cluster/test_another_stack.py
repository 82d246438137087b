"""What another stack has made since preflight looked is not taken: two runs may begin together."""

from typing import Any

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterError
from cluster.ownership.another_stack import refuse_another_stacks
from manifests.ownership import FIELD_MANAGER, field_manager
from tests.support.api_server import ApiServer

_STACK = "kai-anywhere/jetson"
_MEMORY, _PLATFORM = "nvidia.com/gpu.memory", "kai-anywhere.io/platform"


def _ours(kind: str, name: str, **labels: str) -> Any:  # noqa: ANN401 - a manifest
    annotations = {FIELD_MANAGER: field_manager(_STACK, name)}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def _serve(server: ApiServer, path: str, *managers: str, **labels: str) -> None:
    fields: Any = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
    entries = [{"manager": manager, "operation": "Apply", "fieldsV1": fields} for manager in managers]
    server.serve(path, {"metadata": {"labels": labels, "managedFields": entries}})


def test_what_another_stack_made_meanwhile_is_left_and_its_stack_is_named(api: ApiServer, cluster: Cluster) -> None:
    _serve(api, "/api/v1/namespaces/gpu-operator", field_manager("team/edge", "gpu-operator-namespace"))
    with pytest.raises(ClusterError) as refused:
        refuse_another_stacks(cluster, _ours("Namespace", "gpu-operator"))
    assert "Namespace/gpu-operator belongs to another stack of this program, 'team/edge'" in str(refused.value)
    assert "It was left as it is" in str(refused.value)


@pytest.mark.parametrize(
    "managers",
    [
        (),
        ("kubectl-create",),
        (field_manager(_STACK, "gpu-operator-namespace"),),
        (field_manager(_STACK, "gpu-operator-namespace"), field_manager("team/edge", "gpu-operator-namespace")),
        (f"given-back/{field_manager('team/edge', 'gpu-operator-namespace')}",),
    ],
    ids=["nobody", "somebody-whom-the-stack-adopts", "a-killed-run-of-ours", "both", "a-stack-that-gave-it-back"],
)
def test_everything_else_was_judged_by_preflight(api: ApiServer, cluster: Cluster, managers: tuple[str, ...]) -> None:
    _serve(api, "/api/v1/namespaces/gpu-operator", *managers)
    refuse_another_stacks(cluster, _ours("Namespace", "gpu-operator"))


def test_what_is_not_there_is_made(cluster: Cluster) -> None:
    refuse_another_stacks(cluster, _ours("Namespace", "gpu-operator"))


def test_of_a_node_only_labels_that_would_change_count(api: ApiServer, cluster: Cluster) -> None:
    theirs = field_manager("team/edge", "node-labels-jetson-1")
    _serve(api, "/api/v1/nodes/jetson-1", theirs, **{_MEMORY: "122880", "rack": "3"})
    for labels in ({_MEMORY: "122880"}, {_PLATFORM: "tegra"}):
        refuse_another_stacks(cluster, _ours("Node", "jetson-1", **labels))
    with pytest.raises(ClusterError, match="Node/jetson-1 belongs to another stack of this program, 'team/edge'"):
        refuse_another_stacks(cluster, _ours("Node", "jetson-1", **{_MEMORY: "61440"}))
