"""What a reservation pod becomes on a Tegra node, and that no other pod is touched."""

import copy

import pytest

from agents.admission.errors import RefusalError
from agents.admission.review import Answer
from testbed.admission.objects import NAMESPACE, mutations, request, reservation_pod, served
from testbed.stacks import Json


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
