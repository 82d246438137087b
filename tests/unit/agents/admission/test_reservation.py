"""What a reservation pod becomes on a Tegra node, and that no other pod is touched."""

import copy
import json

import msgspec
import pytest

from agents.admission.errors import RefusalError
from agents.admission.mutation import Mutation
from agents.admission.review import Answer
from manifests import reservation
from testbed.admission.objects import NAMESPACE, mutations, request, reservation_pod, served
from testbed.stacks import Json, changed, mixed, parse, rungs_webhook


def mutated(pod: Json) -> Json:
    return copy.deepcopy(dict(mutations()["reservation"].apply(pod, {})[0]))


def answered(pod: Json, namespace: str = NAMESPACE) -> Answer:
    return served().answer("reservation", request(pod, namespace=namespace))


def test_a_reservation_pod_on_a_tegra_node_is_changed() -> None:
    assert answered(reservation_pod()).patch is not None


def test_the_pod_gets_the_fragment_behind_what_it_has() -> None:
    before = reservation_pod()
    after = mutated(before)
    [container] = after["spec"]["containers"]
    assert [entry["name"] for entry in container["env"]] == [
        "POD_NAME",
        "POD_NAMESPACE",
        "NVIDIA_DRIVER_CAPABILITIES",
        "LD_LIBRARY_PATH",
    ]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": True,
        "runAsNonRoot": False,
        "runAsUser": 0,
        "capabilities": {"drop": ["all"]},
        "privileged": True,
    }
    assert [volume["name"] for volume in after["spec"]["volumes"]] == ["nvidia-libs", "dev-nvidia"]
    assert container["volumeMounts"] == [
        {"name": "nvidia-libs", "mountPath": "/usr/lib/aarch64-linux-gnu/nvidia", "readOnly": True},
        {"name": "dev-nvidia", "mountPath": "/dev"},
    ]
    assert after["spec"]["runtimeClassName"] == "nvidia"
    assert after["metadata"] == before["metadata"]


_SAID, _KEPT = "run.ai/reserve_for_gpu_index", "kai-anywhere.io/gpu-uuid"


def updated(annotations: dict[str, str], *, node: str = "jetson-1", namespace: str = NAMESPACE) -> Answer:
    pod = reservation_pod()
    pod["spec"]["nodeName"] = node
    pod["metadata"]["annotations"] = annotations
    return served().answer("reservation", request(pod, namespace=namespace, operation="UPDATE"))


@pytest.mark.parametrize("uuid", ["GPU-1234", "1234-5678"])
def test_a_gpu_that_the_pod_says_by_uuid_becomes_index_0_and_the_uuid_is_kept(uuid: str) -> None:
    answer = updated({_SAID: uuid, "other": "stays"})
    assert answer.allowed
    assert answer.patch is not None
    operations = {load["path"]: load["value"] for load in json.loads(answer.patch)}
    assert operations == {
        "/metadata/annotations/run.ai~1reserve_for_gpu_index": "0",
        "/metadata/annotations/kai-anywhere.io~1gpu-uuid": uuid,
    }


def test_other_updates_pass_as_they_are() -> None:
    again = {_SAID: "0", _KEPT: "GPU-1234"}
    assert updated(again) == updated({}) == updated({_SAID: ""}) == Answer(allowed=True)
    assert updated({_SAID: "GPU-1234"}, node="x86-1") == Answer(allowed=True)
    assert updated({_SAID: "GPU-1234"}, namespace="default") == Answer(allowed=True)


def test_the_pod_that_was_given_is_not_changed() -> None:
    pod = reservation_pod()
    kept = copy.deepcopy(pod)
    mutated(pod)
    assert pod == kept


def test_a_second_pass_changes_nothing() -> None:
    once = mutated(reservation_pod())
    assert mutated(once) == once


@pytest.mark.parametrize("node", ["x86-1", None])
def test_on_another_node_nothing_is_changed(node: str | None) -> None:
    assert answered(reservation_pod(nodeName=node)) == Answer(allowed=True)


def test_in_another_namespace_nothing_is_changed() -> None:
    assert answered(reservation_pod(), "default") == Answer(allowed=True)


@pytest.mark.parametrize("labels", [None, {}, {"app": "other"}])
def test_without_the_label_nothing_is_changed(labels: dict[str, str] | None) -> None:
    pod = reservation_pod()
    pod["metadata"]["labels"] = labels
    assert answered(pod) == Answer(allowed=True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "NL"),
        ("AB", "ABNL"),
        ("AL", "ANL"),
        ("LA", "NLA"),
        ("ALB", "ANLB"),
        ("ANB", "ANBL"),
        ("ALBNC", "ABNCL"),
        ("NL", "NL"),
        ("LN", "NL"),
    ],
)
def test_variables_stand_where_server_side_apply_puts_them(before: str, after: str) -> None:
    """N and L are ours. Every line was seen on a real API server, or is compared there, in tests/engine."""
    names = {"N": "NVIDIA_DRIVER_CAPABILITIES", "L": "LD_LIBRARY_PATH"}
    pod = reservation_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": names.get(name, name), "value": "x"} for name in before]
    env = mutated(pod)["spec"]["containers"][0]["env"]
    assert [entry["name"] for entry in env] == [names.get(name, name) for name in after]
    assert {entry["name"]: entry["value"] for entry in env}["LD_LIBRARY_PATH"] == "/usr/lib/aarch64-linux-gnu/nvidia"


def test_no_other_container_becomes_privileged() -> None:
    pod = reservation_pod()
    others: list[Json] = [{"name": "other", "image": "a:1"}, {"name": "third", "image": "b:1"}]
    pod["spec"]["containers"] = [others[0], *pod["spec"]["containers"], others[1]]
    pod["spec"]["initContainers"] = [{"name": "resource-reservation-init", "image": "c:1"}]
    after = mutated(pod)
    assert [
        container for container in after["spec"]["containers"] if container["name"] != "resource-reservation"
    ] == others
    assert after["spec"]["initContainers"] == pod["spec"]["initContainers"]


def test_a_pod_without_containers_is_refused() -> None:
    with pytest.raises(RefusalError, match=r"needs a container named 'resource-reservation'"):
        mutated(reservation_pod(containers=[]))


def test_a_volume_of_our_name_becomes_ours() -> None:
    """As server-side apply merges it; the API server refuses a volume with two sources."""
    pod = reservation_pod(volumes=[{"name": "dev-nvidia", "hostPath": {"path": "/etc"}}, {"name": "own"}])
    names = {volume["name"]: volume for volume in mutated(pod)["spec"]["volumes"]}
    assert names["dev-nvidia"] == {"name": "dev-nvidia", "hostPath": {"path": "/dev", "type": "Directory"}}
    assert names.keys() == {"nvidia-libs", "dev-nvidia", "own"}


def test_a_pod_without_kais_container_is_refused_with_the_reason() -> None:
    pod = reservation_pod(containers=[{"name": "mine", "image": "a:1"}])
    with pytest.raises(RefusalError, match=r"node jetson-1 .*named 'resource-reservation'.*one has: mine\."):
        mutated(pod)


def of_rungs(node: str) -> Json | None:
    """What a pod becomes in a stack whose nodes differ; None where it is left alone."""
    mutation = mutations(rungs_webhook())["reservation"]
    pod = reservation_pod(nodeName=node, securityContext={"fsGroup": 5, "supplementalGroups": [7]})
    return copy.deepcopy(dict(mutation.apply(pod, {})[0])) if mutation.is_for(pod, NAMESPACE) else None


@pytest.mark.parametrize(
    ("node", "folders", "privileged", "groups"),
    [
        ("jetson-1", [], None, [44, 104]),
        ("jetson-2", ["nvidia-libs"], None, [44, 104]),
        ("jetson-3", ["nvidia-libs", "dev-nvidia"], True, [7]),
    ],
)
def test_a_pod_gets_the_fragment_of_its_node(
    node: str, folders: list[str], privileged: bool | None, groups: list[int]
) -> None:
    after = of_rungs(node)
    assert after is not None
    assert [volume["name"] for volume in after["spec"].get("volumes", [])] == folders
    assert after["spec"]["containers"][0]["securityContext"].get("privileged") is privileged
    assert after["spec"]["securityContext"] == {"fsGroup": 5, "supplementalGroups": groups}


def test_where_nodes_differ_a_node_that_is_not_named_gets_nothing() -> None:
    assert of_rungs("x86-1") is None
    pod = reservation_pod()
    del pod["spec"]["nodeName"]
    assert not mutations(rungs_webhook())["reservation"].is_for(pod, NAMESPACE)


@pytest.mark.parametrize(
    "fields",
    [
        {"fragments": {"a": {}}, "byNode": {"jetson-1": "b"}},
        {
            "fragments": {"": {}},
            "byNode": {"jetson-1": ""},
            "choice": {"annotation": "a", "default": "", "unnamed": "", "unknown": "", "notYet": ""},
        },
    ],
)
def test_a_document_whose_nodes_choose_what_there_is_not_is_refused(fields: Json) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"fragments has no 'b'|choice and byNode"):
        msgspec.convert({"pods": {"labels": {}}} | fields, Mutation)


def test_a_node_with_folders_of_its_own_gets_these_and_every_other_the_platforms() -> None:
    folders = ["/usr/lib/aarch64-linux-gnu/nvidia", "/opt/nvidia/l4t-gpu-libs/openrm"]
    stack = changed(mixed(), "platform.tegra_nodes.jetson-2.driver_library_paths", folders)
    served = msgspec.convert(reservation.mutation(parse(stack)).document(), Mutation)
    assert not served.is_for(reservation_pod(nodeName="jetson-9"), NAMESPACE)
    for node, paths in {"jetson-1": folders[:1], "jetson-2": folders}.items():
        pod, _ = served.apply(reservation_pod(nodeName=node), {})
        [container] = pod["spec"]["containers"]
        assert container["env"][-1]["value"] == ":".join(paths)
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == [*paths, "/dev"]
        assert [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]] == [*paths, "/dev"]
