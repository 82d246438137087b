"""A namespace on which nothing is the stack's any more was made again by others, who may have anything there."""

import pytest

from cluster.access.answers.objects import Namespace
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.namespaces import judge_namespaces
from manifests.ownership import FIELD_MANAGER, field_manager

_NAME = "Namespace/kai-scheduler"
_STATE = DeployedState(deployed=True, objects=frozenset({_NAME}))


def _namespace(*managers: str, **annotations: str) -> Namespace:
    fields = [{"manager": manager, "operation": "Apply", "fieldsV1": {}} for manager in managers]
    metadata = {"name": "kai-scheduler", "uid": "u", "annotations": annotations, "managedFields": fields}
    return Namespace.model_validate({"metadata": metadata})


def test_it_is_named_with_who_made_it_and_both_ways_out() -> None:
    [finding] = judge_namespaces([_namespace("kubectl-create", "helm")], _STATE)
    assert finding.fatal
    for part in ("made again by others (kubectl-create, helm)", "pulumi state delete URN", "up --refresh"):
        assert part in str(finding)
    assert "kubectl delete" not in str(finding), "it may hold what others need"


@pytest.mark.parametrize(
    "namespace",
    [
        _namespace("kubectl-edit", field_manager("kai-anywhere/jetson", "kai-scheduler-namespace")),
        _namespace(field_manager("kai-anywhere/before", "kai-scheduler-namespace")),
        _namespace("pulumi-kubernetes-4dabf181"),
        _namespace("velero-server", **{FIELD_MANAGER: "kai-anywhere/kai-anywhere/jetson/kai-scheduler-namespace"}),
        _namespace(),
    ],
    ids=["ours", "the-stack-was-renamed", "an-older-version", "a-backup-put-back", "nobody-signed"],
)
def test_what_the_stack_made_is_its_own(namespace: Namespace) -> None:
    assert list(judge_namespaces([namespace], _STATE)) == []


@pytest.mark.parametrize(
    "state", [DeployedState(), DeployedState(objects=_STATE.objects, adopted={_NAME: {}})], ids=["unknown", "adopted"]
)
def test_what_the_stack_does_not_delete_is_of_no_concern(state: DeployedState) -> None:
    assert list(judge_namespaces([_namespace("kubectl-create")], state)) == []
