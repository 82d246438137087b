"""What a reservation pod becomes on a Tegra node, and that no other pod is touched."""

import copy

import pytest

from agents.admission.errors import RefusalError
from agents.admission.reservation import mutate
from testbed.admission.objects import NAMESPACE, NODES, fragment, reservation_pod
from testbed.stacks import Json


def mutated(pod: Json) -> Json:
    result = dict(mutate(pod, NAMESPACE, fragment(), NODES))
    return copy.deepcopy(result)


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
def test_on_another_node_the_same_object_comes_back(node: str | None) -> None:
    pod = reservation_pod(nodeName=node)
    assert mutate(pod, NAMESPACE, fragment(), NODES) is pod


def test_in_another_namespace_the_same_object_comes_back() -> None:
    pod = reservation_pod()
    assert mutate(pod, "default", fragment(), NODES) is pod


@pytest.mark.parametrize("labels", [None, {}, {"app": "other"}])
def test_without_the_label_the_same_object_comes_back(labels: dict[str, str] | None) -> None:
    pod = reservation_pod()
    pod["metadata"]["labels"] = labels
    assert mutate(pod, NAMESPACE, fragment(), NODES) is pod


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


def test_a_pod_without_kais_container_is_refused_with_the_reason() -> None:
    pod = reservation_pod(containers=[{"name": "mine", "image": "a:1"}])
    with pytest.raises(RefusalError, match=r"needs a container named 'resource-reservation'.*this one has: mine"):
        mutate(pod, NAMESPACE, fragment(), NODES)
