"""What is there already and is not this stack's is a finding, or adopted where the settings say so; never taken."""

from collections.abc import Mapping
from typing import Any

import pytest

from cluster.access.answers.nodes import Node
from cluster.access.answers.objects import LiveObject
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.first_contact import Contact, meet, planned_objects
from manifests.ownership import BEFORE, field_manager, kept_text
from testbed.stacks import STACKS, Json, changed, gvirtus_full, jetson, parse
from tests.support.hosts.settings import jetson_with_host

STACK = "kai-anywhere/jetson"
_NEVER_DEPLOYED = DeployedState()
_QUEUE = {"spec": {"displayName": "mine", "resources": {"gpu": {"quota": 7, "limit": 8}}, "priority": 5}}


def _live(*managers: str, **content: object) -> LiveObject:
    fields = [{"manager": manager, "operation": "Apply", "fieldsV1": {}} for manager in managers]
    return LiveObject.model_validate({"content": {"metadata": {"managedFields": fields}} | content})


def _node(labels: Mapping[str, str], owners: Mapping[str, list[str]], name: str = "jetson-1") -> dict[str, Node]:
    fields = [
        {"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{label}": {} for label in owned}}}}
        for manager, owned in owners.items()
    ]
    metadata = {"name": name, "labels": dict(labels), "managedFields": fields}
    return {name: Node.model_validate({"metadata": metadata})}


def _meet(
    stack: Json,
    unknown: Mapping[str, LiveObject] | None = None,
    nodes: Mapping[str, Node] | None = None,
    state: DeployedState = _NEVER_DEPLOYED,
) -> Contact:
    return meet(parse(stack), unknown or {}, nodes or {}, state, STACK)


def _adopting(*names: str, stack: Json | None = None) -> Json:
    return changed(stack or jetson(), "cluster.adopt", list(names))


def _only(contact: Contact, *says: str) -> None:
    [finding] = contact.findings
    assert finding.fatal
    for part in says:
        assert part in str(finding)
    assert contact.adopted == {}


@pytest.mark.parametrize("name", STACKS)
def test_every_object_that_any_stack_registers_is_met_with_a_finding(name: str) -> None:
    stack = STACKS[name]()
    planned = planned_objects(parse(stack))
    contact = _meet(stack, {name: _live("kubectl-create") for name in planned})
    assert len(contact.findings) == len(planned)
    assert all(finding.fatal for finding in contact.findings)
    assert contact.adopted == {}


def test_a_queue_that_somebody_made_is_not_taken() -> None:
    _only(
        _meet(jetson(), {"Queue/default-queue": _live("kubectl-create", **_QUEUE)}),
        "Queue 'default-queue' exists already and is not this stack's (written by kubectl-create)",
        "add Queue/default-queue to cluster.adopt",
        "given back on destroy",
        "give the queue another name, or set kai.default_queue: false",
    )


def test_an_object_that_nobody_signed_is_not_taken_either() -> None:
    _only(_meet(jetson(), {"Queue/default-queue": _live()}), "exists already and is not this stack's.")


def test_an_object_in_a_namespace_is_named_with_it() -> None:
    _only(
        _meet(jetson(), {"ConfigMap/gpu-operator/gpu-operator-endpoints": _live("Helm")}),
        "ConfigMap 'gpu-operator-endpoints' in namespace 'gpu-operator' exists already",
        "add ConfigMap/gpu-operator/gpu-operator-endpoints to cluster.adopt",
    )


def test_no_remedy_deletes_anything() -> None:
    stack = gvirtus_full()
    contact = _meet(stack, {planned_object: _live("x") for planned_object in planned_objects(parse(stack))})
    for finding in contact.findings:
        assert not {"delete", "uninstall", "remove"} & set(finding.remedy.lower().split())


def test_what_a_killed_run_of_this_stack_made_is_ours() -> None:
    manager = field_manager(STACK, "kai-scheduler-queue-default-queue")
    assert _meet(jetson(), {"Queue/default-queue": _live("kube-controller-manager", manager)}) == Contact((), {})


_KEPT = {"spec": {"displayName": "mine"}}


def _marked(manager: str, name: str = "default-queue", kept: Json = _KEPT) -> Json:
    """Metadata of what a stack adopted, by the field manager of one of its resources."""
    fields: Json = {"f:metadata": {"f:annotations": {f"f:{BEFORE}": {}}}}
    return {
        "name": name,
        "annotations": {BEFORE: kept_text(kept)},
        "managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": fields}],
    }


def test_what_a_killed_run_of_this_stack_adopted_stays_adopted() -> None:
    """As with a state from before the adoption: nothing but the annotation tells what it held."""
    metadata = _marked(field_manager(STACK, "kai-scheduler-queue-default-queue"))
    live = LiveObject.model_validate({"content": {"metadata": metadata}})
    assert _meet(jetson(), {"Queue/default-queue": live}) == Contact((), {"Queue/default-queue": _KEPT})


def test_what_a_killed_run_adopted_stays_adopted_though_somebody_took_the_annotation_off() -> None:
    """The state alone tells what it held, from before it was written."""
    manager = field_manager(STACK, "kai-scheduler-queue-default-queue")
    state = DeployedState(begun={"Queue/default-queue": {}, "Node/jetson-1": {"metadata": {"labels": {_MEMORY: "3"}}}})
    written = {"Queue/default-queue": _live("kubectl-create", manager)}
    contact = _meet(jetson(), written, nodes=_node({_MEMORY: "122880"}, {manager: [_MEMORY]}), state=state)
    assert contact == Contact((), state.begun)
    # Killed before it wrote anything.
    untouched = {"Queue/default-queue": _live("kubectl-create", **_QUEUE)}
    contact = _meet(
        _adopting("Queue/default-queue"), untouched, nodes=_node({_MEMORY: "122880"}, {"me": [_MEMORY]}), state=state
    )
    assert contact.adopted == {
        "Queue/default-queue": {"spec": {"displayName": "mine", "resources": {"gpu": {"quota": 7, "limit": 8}}}}
    }


_SHARD = "SchedulingShard/default"


def _shard(*managers: str, namespace: str = "kai-scheduler") -> LiveObject:
    marks = {"meta.helm.sh/release-name": "kai-scheduler", "meta.helm.sh/release-namespace": namespace}
    fields = [{"manager": manager, "operation": "Update", "fieldsV1": {}} for manager in managers]
    return LiveObject.model_validate({"content": {"metadata": {"annotations": marks, "managedFields": fields}}})


def test_what_the_release_of_a_killed_run_made_is_ours() -> None:
    assert _meet(jetson(), {_SHARD: _shard("pulumi-resource-kubernetes", "kubectl-edit")}) == Contact()


@pytest.mark.parametrize(
    "shard",
    [_shard("helm"), _shard("pulumi-resource-kubernetes", namespace="other"), _live("pulumi-resource-kubernetes")],
)
def test_what_another_release_made_is_not_taken(shard: LiveObject) -> None:
    _only(_meet(jetson(), {_SHARD: shard}), "SchedulingShard 'default' exists already and is not this stack's")


def test_what_the_release_of_another_stack_made_is_never_taken() -> None:
    theirs = field_manager("team/edge", "kai-scheduler-shard")
    _only(_meet(jetson(), {_SHARD: _shard("pulumi-resource-kubernetes", theirs)}), "'team/edge'")


@pytest.mark.parametrize("adopt", [(), ("ValidatingAdmissionPolicy/kai-anywhere-pod-guard",)])
def test_what_another_stack_made_is_never_taken(adopt: tuple[str, ...]) -> None:
    theirs = {"ValidatingAdmissionPolicy/kai-anywhere-pod-guard": _live(field_manager("team/edge", "pod-guard-policy"))}
    _only(_meet(_adopting(*adopt), theirs), "belongs to another stack of this program, 'team/edge'", "another context")


def test_a_stack_whose_name_begins_like_ours_is_another_one() -> None:
    theirs = {"Queue/default-queue": _live(field_manager(f"{STACK}-2", "queue"))}
    _only(_meet(jetson(), theirs), f"belongs to another stack of this program, '{STACK}-2'")


def test_an_adopted_object_keeps_what_it_held_in_the_fields_that_the_stack_sets() -> None:
    contact = _meet(_adopting("Queue/default-queue"), {"Queue/default-queue": _live("kubectl-create", **_QUEUE)})
    kept = {"spec": {"displayName": "mine", "resources": {"gpu": {"quota": 7, "limit": 8}}}}
    assert contact == Contact((), {"Queue/default-queue": kept}), "priority is not set by the stack, so it stays"


def test_what_an_earlier_run_adopted_stays_adopted_whatever_the_settings_say_now() -> None:
    state = DeployedState(deployed=True, adopted={"Queue/default-queue": {"spec": {"priority": 1}}})
    assert _meet(jetson(), state=state).adopted == state.adopted


def test_an_entry_for_nothing_of_the_stack_is_a_finding() -> None:
    _only(
        _meet(_adopting("Queue/default-queu")),
        "cluster.adopt names Queue/default-queu, which this stack does not make. Did you mean Queue/default-queue?",
    )
    assert _meet(_adopting("Queue/default-queue", "Node/jetson-1")).findings == ()


_MEMORY = "nvidia.com/gpu.memory"


def test_a_label_that_somebody_set_to_another_value_is_not_taken() -> None:
    _only(
        _meet(jetson(), nodes=_node({_MEMORY: "30000"}, {"kubectl-label": [_MEMORY]})),
        "node 'jetson-1' has labels that are not this stack's: "
        "nvidia.com/gpu.memory is '30000' by kubectl-label, the stack sets '122880'",
        "add Node/jetson-1 to cluster.adopt",
        "say the same values in the settings",
    )


def test_a_label_that_nobody_signed_is_not_taken_either() -> None:
    _only(_meet(jetson(), nodes=_node({_MEMORY: "30000"}, {})), "nvidia.com/gpu.memory is '30000', the stack sets")


def test_the_same_value_takes_nothing_from_anybody() -> None:
    assert _meet(jetson(), nodes=_node({_MEMORY: "122880"}, {"kubectl-label": [_MEMORY]})) == Contact((), {})


def test_an_adopted_node_keeps_the_values_that_differ() -> None:
    labels = {_MEMORY: "30000", "nvidia.com/gpu.count": "1", "team": "robots"}
    contact = _meet(_adopting("Node/jetson-1"), nodes=_node(labels, {"kubectl-label": list(labels)}))
    assert contact == Contact((), {"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "30000"}}}})


def test_a_value_that_was_kept_once_is_not_replaced_by_a_later_one() -> None:
    state = DeployedState(
        deployed=True,
        labels={"jetson-1": {_MEMORY: "122880"}},
        adopted={"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "30000"}}}},
    )
    count = "nvidia.com/gpu.count"
    nodes = _node({_MEMORY: "122880", count: "2"}, {field_manager(STACK, "x"): [_MEMORY], "me": [count]})
    adopted = _meet(_adopting("Node/jetson-1"), nodes=nodes, state=state).adopted
    assert adopted == {"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "30000", count: "2"}}}}


def _marked_node(stack: str, kept: Mapping[str, str]) -> dict[str, Node]:
    """A node whose labels a stack set, of which it adopted some."""
    metadata = _marked(field_manager(stack, "node-labels"), "jetson-1", {"metadata": {"labels": dict(kept)}})
    metadata["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"] = {f"f:{label}": {} for label in kept}
    return {"jetson-1": Node.model_validate({"metadata": metadata | {"labels": {_MEMORY: "122880"}}})}


def test_a_node_that_a_killed_run_adopted_gets_its_labels_back_all_the_same() -> None:
    adopted = _meet(jetson(), nodes=_marked_node(STACK, {_MEMORY: "30000"})).adopted
    assert adopted == {"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "30000"}}}}
    # Killed while it adopted one label more than the state knows of.
    count = "nvidia.com/gpu.count"
    state = DeployedState(deployed=True, adopted={"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "20000"}}}})
    adopted = _meet(jetson(), nodes=_marked_node(STACK, {_MEMORY: "30000", count: "2"}), state=state).adopted
    assert adopted == {"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "20000", count: "2"}}}}


def test_a_node_on_which_nothing_is_the_stacks_any_more_is_adopted_anew_with_what_it_holds_now() -> None:
    """It joined again under its name, or the cluster was put back from before the stack came."""
    state = DeployedState(
        deployed=True,
        labels={"jetson-1": {_MEMORY: "122880"}},
        adopted={"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "30000"}}}},
    )
    assert _meet(jetson(), nodes=_node({}, {}), state=state) == Contact((), {})
    now = _node({_MEMORY: "50000"}, {"kubectl-label": [_MEMORY]})
    assert _meet(jetson(), nodes=now, state=state) == Contact(
        (), {"Node/jetson-1": {"metadata": {"labels": {_MEMORY: "50000"}}}}
    )
    renamed = _node({_MEMORY: "122880"}, {field_manager("kai-anywhere/before", "node-labels"): [_MEMORY]})
    assert _meet(jetson(), nodes=renamed, state=state).adopted == state.adopted


def test_what_another_stack_kept_beside_a_node_is_not_ours_to_give_back() -> None:
    assert _meet(jetson(), nodes=_marked_node("team/edge", {"gvirtus.io/frontend.allowed": "false"})).adopted == {}


@pytest.mark.parametrize("manager", [field_manager(STACK, "node-labels-jetson-1"), "pulumi-kubernetes-1234"])
def test_a_label_of_ours_that_was_edited_by_hand_is_repaired_not_asked_about(manager: str) -> None:
    state = DeployedState(deployed=True, labels={"jetson-1": {_MEMORY: "122880"}})
    edited = _node({_MEMORY: "100"}, {"kubectl-edit": [_MEMORY]})
    assert _meet(jetson(), nodes=edited, state=state).findings == ()
    refreshed = DeployedState(deployed=True, labels={"jetson-1": {_MEMORY: "100"}})
    assert _meet(jetson(), nodes=edited, state=refreshed).findings == (), "pulumi refresh noted the edit down"
    stack = changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 61440)
    own = _node({_MEMORY: "122880"}, {manager: [_MEMORY]})
    assert _meet(stack, nodes=own, state=state).findings == (), "a new value of our own label"


def test_a_label_that_was_the_same_by_chance_is_somebodys_when_ours_changes() -> None:
    state = DeployedState(deployed=True, labels={"jetson-1": {_MEMORY: "122880"}})
    stack = changed(jetson(), "platform.tegra_nodes.jetson-1.gpu_memory_mib", 61440)
    both = _node({_MEMORY: "122880"}, {field_manager(STACK, "x"): [_MEMORY], "kubectl-label": [_MEMORY]})
    _only(_meet(stack, nodes=both, state=state), "nvidia.com/gpu.memory is '122880'", "the stack sets '61440'")


def test_an_operand_that_the_stacks_own_operator_switched_on_is_switched_off_without_a_question() -> None:
    """A node of the stack was installed anew, and a refresh forgot the labels of the old one."""
    switch = "nvidia.com/gpu.deploy.dcgm"
    installed = DeployedState(deployed=True, releases=frozenset({("gpu-operator", "gpu-operator")}))

    def met(value: str, manager: str, state: DeployedState) -> Contact:
        return _meet(jetson(), nodes=_node({switch: value}, {manager: [switch]}), state=state)

    assert met("true", "gpu-operator", installed) == Contact((), {})
    for contact in (
        met("true", "gpu-operator", _NEVER_DEPLOYED),
        met("true", "kubectl-label", installed),
        met("paused-for-driver-upgrade", "gpu-operator", installed),
    ):
        _only(contact, f"{switch} is '", "the stack sets 'false'")


def test_a_label_of_another_stack_is_never_taken() -> None:
    theirs = _node({_MEMORY: "1"}, {field_manager("team/edge", "node-labels-jetson-1"): [_MEMORY]})
    _only(_meet(_adopting("Node/jetson-1"), nodes=theirs), "belongs to another stack of this program, 'team/edge'")


def test_a_label_whose_value_is_asked_of_a_host_is_somebodys_whatever_it_says() -> None:
    contact = _meet(jetson_with_host(), nodes=_node({_MEMORY: "30000"}, {"kubectl-label": [_MEMORY]}))
    _only(contact, "nvidia.com/gpu.memory is '30000' by kubectl-label, the stack sets what its host says")


def test_the_label_of_a_frontend_is_looked_at_where_the_stack_sets_it_itself() -> None:
    label = "gvirtus.io/frontend.allowed"
    nodes = _node({label: "false"}, {"kubectl-label": [label]}, "cpu-1")
    _only(_meet(gvirtus_full(), nodes=nodes), "node 'cpu-1' has labels that are not this stack's")
    adopted: Any = _meet(_adopting("Node/cpu-1", stack=gvirtus_full()), nodes=nodes).adopted
    assert adopted == {"Node/cpu-1": {"metadata": {"labels": {label: "false"}}}}
