"""Namespaces of the stack's that others made again, or that one part of it leaves and another one moves to."""

from dataclasses import replace

import pytest

from cluster.access.answers.objects import Namespace
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.namespaces import judge_lost_namespaces, judge_moves, judge_namespaces
from manifests import every_object
from manifests.ownership import FIELD_MANAGER, field_manager, key
from testbed.stacks import STACKS, Json, changed, jetson, monitoring, parse, webhook

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


_HELD = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "remaining: example.com/x"}


@pytest.mark.parametrize("state", [DeployedState(), _STATE], ids=["a first run", "with a release"])
@pytest.mark.parametrize("preview", [True, False])
def test_a_run_does_not_begin_in_a_namespace_that_is_being_deleted(state: DeployedState, *, preview: bool) -> None:
    metadata = {"name": "kai-scheduler", "uid": "u", "deletionTimestamp": "2026-11-28T12:00:00Z"}
    state = replace(state, releases=frozenset({("kai-scheduler", "kai-scheduler")}) if state.objects else frozenset())
    for conditions, held in (([], ""), ([_HELD], " It waits: remaining: example.com/x.")):
        leaving = Namespace.model_validate({"metadata": metadata, "status": {"conditions": conditions}})
        [finding] = judge_lost_namespaces(
            parse(jetson()), {"kai-scheduler": leaving}, state, "kai-anywhere/jetson", preview=preview
        )
        assert finding.fatal is not preview
        assert finding.what == f"namespace 'kai-scheduler' is being deleted, and takes no new objects.{held}"
        assert ("kubectl get namespace kai-scheduler" in finding.remedy) is bool(held)


def test_a_namespace_that_is_there_or_not_yet_is_of_no_concern_to_a_first_run() -> None:
    for namespaces in ({}, {"kai-scheduler": _namespace()}):
        assert list(judge_lost_namespaces(parse(jetson()), namespaces, DeployedState(), "s", preview=False)) == []


def _after(settings: Json, stack: str = "kai-anywhere/jetson") -> DeployedState:
    """What a stack remembers of its namespaces."""
    objects = every_object.objects(parse(settings))
    return DeployedState(
        managers={
            key(manifest): field_manager(stack, resource)
            for resource, manifest in objects.items()
            if manifest["kind"] == "Namespace"
        }
    )


def test_a_namespace_that_one_part_leaves_is_not_given_to_another_in_the_same_run() -> None:
    taken = changed(monitoring(), "monitoring.namespace", "kai-anywhere")
    [finding] = judge_moves(parse(taken), _after(webhook()))
    assert finding.fatal
    parts = (
        "'kai-anywhere' is this stack's 'admission-namespace'",
        "'monitoring-namespace'",
        "twice",
        "another namespace",
    )
    for part in parts:
        assert part in str(finding)
    left = changed(monitoring(), "monitoring.namespace", "elsewhere")
    assert list(judge_moves(parse(left), _after(webhook()))) == []
    assert list(judge_moves(parse(taken), _after(jetson()))) == [], "the run between has let it go"


def test_one_that_was_adopted_may_be_given_since_it_is_never_deleted() -> None:
    name = "Namespace/kai-anywhere"
    state = DeployedState(managers=_after(webhook()).managers, adopted={name: {}})
    assert list(judge_moves(parse(changed(monitoring(), "monitoring.namespace", "kai-anywhere")), state)) == []


@pytest.mark.parametrize("stack", STACKS)
def test_each_part_keeps_its_own_namespace(stack: str) -> None:
    settings = STACKS[stack]()
    state = _after(settings, f"kai-anywhere/{60 * 'before'}")
    assert state.managers
    assert list(judge_moves(parse(settings), state)) == []
