"""What a plan means for people: sentences about the program's own objects, before and after."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.reservation import Privilege
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from manifests.reservation import NODES_OF_THE_RUNG, OVERRIDES
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER
from operations.engine_events import Record, read_events
from operations.pull_request.comment import Occasion, preview_comment
from operations.pull_request.consequences import sentences
from operations.pull_request.rungs import rungs
from operations.redaction import HIDDEN, Redactor
from testbed import stacks
from testbed.stacks import Json, changed, parse
from tests.unit.operations.pull_request.logs import lines, record, step, summary
from tests.unit.operations.pull_request.plans import preview, urn

ANEW = "Reservation pods that run keep what they have until KAI makes them anew."
KINDS = {
    "jetson": stacks.jetson(),
    "never": stacks.never(),
    "unprivileged": stacks.unprivileged(),
    "rungs": stacks.rungs(),
    "x86": stacks.x86(),
    "mixed": stacks.mixed(),
    "rungs by the webhook": stacks.rungs_webhook(),
    "one rung by the webhook": stacks.webhook(),
}


def _said(before: Json | None, after: Json | None) -> list[str]:
    return sentences(preview(before, after), Redactor())


@pytest.mark.parametrize("kind", KINDS)
def test_what_reservation_pods_get_is_read_from_the_objects_that_give_it(kind: str) -> None:
    settings = parse(KINDS[kind])
    everything = preview(None, KINDS[kind])
    result = rungs((step.type, step.new.inputs or {}) for step in everything.steps if step.new is not None)
    assert result == (settings.privileges if settings.overrides_apply else {})


@pytest.mark.parametrize("before", [stacks.rungs(), stacks.rungs_webhook()], ids=["policy", "webhook"])
def test_a_node_that_loses_privilege_is_named(before: Json) -> None:
    after = changed(before, "reservation.privilege_by_node", {"jetson-2": "devices", "jetson-3": "devices"})
    said = _said(before, after)
    assert said[:2] == ["Node `jetson-3`: reservation pods get less privilege (`privileged` → `devices`).", ANEW]


def test_gained_privilege_comes_first_and_is_bold() -> None:
    before = stacks.rungs()
    after = changed(before, "reservation.privilege_by_node", {"jetson-2": "privileged", "jetson-3": "devices"})
    assert _said(before, after)[:3] == [
        "Node `jetson-2`: reservation pods get **more privilege** (`devices` → `privileged`).",
        "Node `jetson-3`: reservation pods get less privilege (`privileged` → `devices`).",
        ANEW,
    ]


def test_another_carrier_alone_changes_no_nodes_privilege() -> None:
    said = _said(stacks.rungs(), stacks.rungs_webhook())
    assert not any("privilege" in sentence for sentence in said)


def test_overrides_that_go_leave_the_pods_as_kai_makes_them() -> None:
    said = _said(stacks.jetson(), stacks.never())
    assert said[0] == "Node `jetson-1`: reservation pods get less privilege (`privileged` → as KAI makes them)."


def test_a_nodes_memory_is_told_with_what_it_was() -> None:
    after = changed(stacks.jetson(), "platform.tegra_nodes", {"jetson-1": {"gpu_memory_mib": 61440}})
    assert _said(stacks.jetson(), after) == [
        "Node `jetson-1`: KAI may share `61440` MiB of each GPU instead of `122880` MiB."
    ]


def test_another_number_of_gpus_is_told() -> None:
    after = changed(stacks.jetson(), "platform.tegra_nodes.jetson-1.gpu_count", 2)
    assert "Node `jetson-1`: KAI counts `2` GPUs there instead of `1`." in _said(stacks.jetson(), after)


def test_who_owns_the_container_toolkit_of_a_jetson_is_told() -> None:
    after = changed(stacks.jetson(), "platform.container_toolkit", "operator")
    comes = "Node `jetson-1`: the GPU Operator's container toolkit comes, and may restart containerd there."
    goes = "Node `jetson-1`: the GPU Operator's container toolkit goes."
    assert (_said(stacks.jetson(), after), _said(after, stacks.jetson())) == ([comes], [goes])
    assert not any("container toolkit" in said for said in _said(None, stacks.jetson()) + _said(stacks.jetson(), None))


def test_a_node_that_goes_is_told() -> None:
    more = {"jetson-1": {"gpu_memory_mib": 122880}, "jetson-9": {"gpu_memory_mib": 4096}}
    before = changed(stacks.jetson(), "platform.tegra_nodes", more)
    said = _said(before, stacks.jetson())
    assert "Node `jetson-9`: reservation pods get less privilege (`privileged` → as KAI makes them)." in said
    assert "Node `jetson-9`: this stack does not say any more what KAI may share of a GPU (it was `4096` MiB)." in said


def test_a_memory_that_a_host_tells_at_the_deployment_is_not_invented() -> None:
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    assert _sentences_of_memory("1000", unknown) == [
        "Node `n`: KAI may share of a GPU what its host answers at the deployment instead of `1000` MiB."
    ]
    assert _sentences_of_memory(unknown, "1000") == ["Node `n`: KAI may share `1000` MiB of each GPU."]


def _sentences_of_memory(old: str, new: str) -> list[str]:
    states = ({"metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": memory}}} for memory in (old, new))
    kind = "kubernetes:core/v1:NodePatch"
    return sentences(record(step("update", "n", type_=kind, old=next(states), new=next(states))), Redactor())


def test_many_nodes_with_the_same_change_are_one_sentence() -> None:
    nodes = {f"jetson-{number:02}": {"gpu_memory_mib": 10240} for number in range(15)}
    before = changed(stacks.jetson(), "platform.tegra_nodes", nodes)
    after = changed(before, "platform.tegra_nodes", {node: {"gpu_memory_mib": 20480} for node in nodes})
    [said] = _said(before, after)
    assert said.startswith("Nodes `jetson-00`, `jetson-01`, ")
    assert said.endswith("`jetson-09` and 5 more: KAI may share `20480` MiB of each GPU instead of `10240` MiB.")


def test_labels_of_many_nodes_in_one_resource_are_told_node_by_node() -> None:
    def all_of(**memory: str) -> Json:
        nodes = {name: {"labels": {"nvidia.com/gpu.memory": mib}} for name, mib in memory.items()}
        return {"labels": {"kai-anywhere.io/platform": "tegra"}, "nodes": nodes}

    kind = "kai-anywhere:index:ManyNodeLabels"
    recorded = record(step("update", "n", type_=kind, old=all_of(a="1000", b="2000"), new=all_of(a="1000", b="3000")))
    assert sentences(recorded, Redactor()) == ["Node `b`: KAI may share `3000` MiB of each GPU instead of `2000` MiB."]

    labels = {"nvidia.com/gpu.memory": "1000", "kai-anywhere.io/platform": "tegra"}
    one = {"metadata": {"name": "a", "labels": labels}}
    moved = record(
        step("create", "all", type_=kind, new=all_of(a="1000")),
        step("delete", "a", type_="kubernetes:core/v1:NodePatch", old=one),
    )
    assert sentences(moved, Redactor()) == [], "a node that moves to another resource has the same labels"


def test_time_slicing_takes_a_node_from_kai() -> None:
    profile = {"sliced": {"nodes": ["x86-1"], "replicas": 4, "sharing": "time_slicing"}}
    said = _said(stacks.x86(), changed(stacks.x86(), "node_profiles", profile))
    assert "Node `x86-1`: the device plugin's profile changes (none → `sliced`), and the plugin restarts there." in said
    assert "Node `x86-1`: KAI places no pods there any more: its GPUs are time-sliced." in said


QUEUES = {"robots": {"gpu": {"quota": 2, "limit": 4}}, "lab": {}}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (QUEUES | {"robots": {"gpu": {"quota": 1, "limit": 4}}}, ["Queue `robots`: GPU quota `2` → `1` GPUs."]),
        (
            QUEUES | {"robots": {"gpu": {"quota": 2}, "parent": "lab", "cpu": {"limit": 500}}},
            ["Queue `robots`: GPU limit `4` → no limit; CPU limit no limit → `500` millicpus; parent none → `lab`."],
        ),
        ({"lab": {}}, ["Queue `robots` is deleted: pods that name it are not scheduled any more."]),
        (
            QUEUES | {"new": {"gpu": {"quota": 0.5}}},
            ["Queue `new` is new: GPU quota `0.5` GPUs, GPU limit no limit, GPU weight beyond it `1`."],
        ),
        (QUEUES, []),
    ],
)
def test_a_queue_is_told_by_what_it_promises(after: Json, expected: list[str]) -> None:
    before = changed(stacks.jetson(), "kai.queues", QUEUES)
    assert _said(before, changed(before, "kai.queues", after)) == expected


def test_another_version_says_who_restarts() -> None:
    before = changed(stacks.jetson(), "kai.chart", {"version": "v0.17.0"})
    after = changed(stacks.jetson(), "kai.chart", {"version": "v0.18.6"})
    assert "KAI scheduler `v0.17.0` → `v0.18.6`: its scheduler restarts; running pods go on." in _said(before, after)
    before = changed(stacks.jetson(), "gpu_operator.chart", {"version": "v26.7.0"})
    pinned = GPU_OPERATOR.version
    assert (
        f"GPU Operator `v26.7.0` → `{pinned}`: its operands restart node by node; a new toolkit may restart containerd."
    ) in _said(before, stacks.jetson())


def test_values_of_a_chart_without_another_version_are_told() -> None:
    said = _said(stacks.jetson(), changed(stacks.jetson(), "kai.images", {"pull_secrets": ["login"]}))
    assert said == ["KAI scheduler: values of its chart change; what reads them restarts, running pods of yours go on."]


def test_the_first_and_the_last_deployment_are_told() -> None:
    first, last = _said(None, stacks.jetson()), _said(stacks.jetson(), None)
    assert f"KAI scheduler `{KAI_SCHEDULER.version}` is installed." in first
    assert "The pod guard comes: it judges pods that are made or changed from then on." in first
    assert "KAI scheduler is **removed**." in last
    assert "The pod guard goes: it judges pods that are made or changed from then on." not in last
    assert any(line.endswith("is **deleted**, with everything in it.") for line in last)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("create", "Host `gpu-1` is prepared: its container runtime restarts if its configuration changes."),
        ("update", "Host `gpu-1` is configured anew: its container runtime restarts if its configuration changes."),
        ("replace", "Host `gpu-1` is configured anew: its container runtime restarts if its configuration changes."),
        ("delete", "Host `gpu-1` is given back: its container runtime restarts if what is taken back concerns it."),
    ],
)
def test_a_host_says_when_its_container_runtime_restarts(op: str, said: str) -> None:
    def event(name: str) -> dict[str, Any]:
        result = step(op, name, type_="command:remote:Command", old={"stdin": "a"}, new={"stdin": "b"})
        metadata = result["resourcePreEvent"]["metadata"]
        metadata["urn"] = urn("Hosts$kai-anywhere:index:Host", "command:remote:Command", name)
        return result

    events = [event(f"hosts-gpu-1-{command}") for command in ("agent", "probe", "configured", "check")]
    assert sentences(read_events(lines(*events, summary())), Redactor()) == [said]


def test_a_workload_restarts_where_its_pods_change_and_not_where_its_size_does() -> None:
    def states(key: str) -> list[Mapping[str, Any]]:
        place = {"metadata": {"namespace": "ns", "name": "web"}}
        return [place | {"spec": {"replicas": 1, "template": {}} | {key: value}} for value in (2, 3)]

    def said(key: str) -> list[str]:
        old, new = states(key)
        return sentences(record(step("update", "web", old=old, new=new)), Redactor())

    assert said("template") == ["Deployment `ns/web`: its pods restart."]
    assert said("replicas") == []


def test_names_of_others_stay_in_code_and_secrets_are_hidden() -> None:
    evil = "`x` @admin <b> hunter2"
    manifest = {"metadata": {"name": evil}, "spec": {"resources": {"gpu": {"quota": evil}}}}
    kind = "kubernetes:scheduling.run.ai/v2:Queue"
    [said] = sentences(record(step("create", "q", type_=kind, new=manifest)), Redactor(["hunter2"]))
    assert said == f"Queue `` `x` @admin <b> {HIDDEN} `` is new: GPU quota `` `x` @admin <b> {HIDDEN} `` GPUs."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "name", "labels", "spec", "resources", "gpu", "quota", "mutations", "data", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


KINDS_READ = [
    "NodePatch",
    "ManyNodeLabels",
    "Queue",
    "Release",
    "MutatingAdmissionPolicy",
    "ConfigMap",
    "Deployment",
    "Namespace",
]
INPUTS = st.dictionaries(
    st.sampled_from(["metadata", "spec", "data", "values", "name", "version", "nodes"]), JSON, max_size=4
)


@given(st.sampled_from(KINDS_READ), INPUTS, INPUTS)
def test_no_shape_of_values_ends_in_an_error(kind: str, old: Json, new: Json) -> None:
    recorded = record(step("update", "n", type_=f"kubernetes:x:{kind}", old=old, new=new))
    assert all(isinstance(sentence, str) for sentence in sentences(recorded, Redactor()))


@pytest.mark.parametrize(
    "document",
    ["", "{", "[" * 100_000, "[]", '{"mutations": {"reservation": {"byNode": {"n": 1}}}}'],
    ids=["nothing", "no JSON", "too deep", "a list", "no name"],
)
def test_a_document_of_another_form_gives_nothing(document: str) -> None:
    node = {"metadata": {"name": "n", "labels": {"kai-anywhere.io/platform": "tegra"}}}
    config = {"metadata": {"name": "kai-anywhere-admission-v2"}, "data": {"settings.json": document}}
    assert rungs([("kubernetes:core/v1:NodePatch", node), ("kubernetes:core/v1:ConfigMap", config)]) == {}


def _comment(recorded: Record) -> str:
    return preview_comment(recorded, Occasion("jetson", 0), Redactor())


def test_the_comment_begins_with_what_changes_for_people() -> None:
    after = changed(stacks.jetson(), "platform.tegra_nodes", {"jetson-1": {"gpu_memory_mib": 61440}})
    text = _comment(preview(stacks.jetson(), after))
    people = "#### What changes for people\n\n- Node `jetson-1`: KAI may share `61440` MiB of each GPU instead of"
    assert text.index(people) < text.index("#### Resources that change") < text.index("#### Values")
    assert "\n**`NodeLabels`**: 1 to be updated\n\n- `update` `kubernetes:core/v1:NodePatch` `node-labels-" in text


def test_resources_stand_by_component_and_unchanged_ones_are_folded() -> None:
    text = _comment(preview(stacks.jetson(), changed(stacks.jetson(), "kai.queues", {"robots": {}})))
    stay = text[text.index("#### Resources that stay as they are") :]
    assert "<details><summary><code>PodGuard: 2</code></summary>" in stay
    assert "<details><summary><code>NodeLabels: 1</code></summary>" in stay
    changing = text[: text.index("#### Values")]
    assert "**`KaiScheduler`**: " in changing
    assert "PodGuard" not in changing


def test_a_plan_that_people_do_not_notice_says_so() -> None:
    assert "- Nothing changes.\n" in _comment(preview(stacks.jetson(), stacks.jetson()))
    service = step("update", "x", type_="kubernetes:core/v1:Service", old={"a": 1}, new={"a": 2})
    assert "- 1 resource would change, and people notice none of it: no privilege" in _comment(
        record(service, summary())
    )


def test_a_cut_off_plan_claims_nothing() -> None:
    recorded = read_events(lines(step("same", "x", new={})))
    assert json.dumps(sentences(recorded, Redactor())) == "[]"
    assert "What changes for people" not in _comment(recorded)


def test_many_beginnings_of_a_list_of_nodes_are_read_once() -> None:
    """Read from each of them to the end, a hostile plan would take hours."""
    node = {"metadata": {"name": "jetson-1", "labels": {PLATFORM: PLATFORM_TEGRA}}}
    condition = {"name": NODES_OF_THE_RUNG, "expression": "params.metadata.name in [" * 100_000 + '"jetson-1"]'}
    policy = {"metadata": {"name": OVERRIDES}, "spec": {"matchConditions": [condition]}}
    kinds = ("kubernetes:core/v1:NodePatch", "kubernetes:admissionregistration.k8s.io/v1:MutatingAdmissionPolicy")
    assert rungs(zip(kinds, (node, policy), strict=True)) == {"jetson-1": Privilege.NONE}
