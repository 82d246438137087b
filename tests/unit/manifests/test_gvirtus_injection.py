"""The injection by value: what it adds, what it leaves alone, and that twice is once."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.gvirtus import BackendKind
from manifests.gvirtus.injection import (
    ENABLED_LABEL,
    PATH,
    VOLUME,
    Endpoint,
    Injection,
    inject,
    refusal,
    webhook_document,
)

_ENDPOINTS = {
    "a": Endpoint("a", BackendKind.GVIRTUS, "10.96.0.10", "9999"),
    "l": Endpoint("l", BackendKind.LUPINE, "l.gvirtus-system.svc", "14833"),
}
_INJECTION = Injection(_ENDPOINTS, "a")
_NO_DEFAULT = Injection(_ENDPOINTS, None)


def _pod(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {
        "metadata": {"name": "p", "labels": {ENABLED_LABEL: "true"}},
        "spec": {"containers": [{"name": "main", "image": "a:1"}], **spec},
    }


def _choosing(name: str) -> dict[str, Any]:
    pod = _pod()
    pod["metadata"]["annotations"] = {"gvirtus.io/backend": name}
    return pod


def test_the_file_is_what_gvirtus_reads() -> None:
    annotations = inject(_pod(), _INJECTION)["metadata"]["annotations"]
    assert json.loads(annotations["gvirtus.io/properties"]) == {
        "communicator": [
            {"endpoint": {"suite": "tcp/ip", "protocol": "tcp", "server_address": "10.96.0.10", "port": "9999"}}
        ]
    }
    assert annotations["gvirtus.io/backend"] == "a", "what was chosen for the pod can be seen"


def test_lupine_gets_one_variable_and_nothing_else() -> None:
    before = _choosing("l")
    after = inject(before, _INJECTION)
    assert after["spec"]["containers"][0].pop("env") == [
        {"name": "LUPINE_SERVER", "value": "l.gvirtus-system.svc:14833"}
    ]
    assert after == before


@pytest.mark.parametrize("labels", [None, {}, {ENABLED_LABEL: "false"}, {"other": "true"}])
def test_a_pod_that_does_not_ask_is_the_same_object(labels: dict[str, str] | None) -> None:
    pod = _pod()
    pod["metadata"]["labels"] = labels
    assert inject(pod, _INJECTION) is pod


@pytest.mark.parametrize("name", ["x", ""])
def test_an_unknown_backend_adds_nothing_and_is_refused(name: str) -> None:
    pod = _choosing(name)
    assert inject(pod, _INJECTION) is pod
    message = refusal(pod, _INJECTION)
    assert message is not None
    assert "set the annotation gvirtus.io/backend to one of: a, l; without it, pods get a" in message


def test_a_pod_that_names_none_is_refused_where_there_is_no_default() -> None:
    assert refusal(_pod(), _NO_DEFAULT) == (
        "this pod asks for a remote GPU and names no backend: set the annotation gvirtus.io/backend to one of: a, l"
    )
    assert refusal(_choosing("l"), _NO_DEFAULT) is None


def test_the_given_pod_is_not_changed() -> None:
    pod = _pod(initContainers=[{"name": "i", "image": "b:1"}])
    before = copy.deepcopy(pod)
    assert inject(pod, _INJECTION) != before
    assert pod == before


def test_a_containers_own_file_stays() -> None:
    own = {"name": "GVIRTUS_CONFIG", "value": "/app/own.json"}
    pod = _pod(containers=[{"name": "own", "env": [own]}, {"name": "other"}])
    mine, other = inject(pod, _INJECTION)["spec"]["containers"]
    assert mine == {"name": "own", "env": [own]}
    assert other["env"] == [{"name": "GVIRTUS_CONFIG", "value": PATH}]


def test_what_is_in_the_way_is_refused_and_not_overwritten() -> None:
    volume = {"name": VOLUME, "emptyDir": {}}
    after = inject(_pod(volumes=[volume]), _INJECTION)
    assert after["spec"]["volumes"] == [volume]
    assert "rename your volume" in str(refusal(after, _INJECTION))
    mount = {"name": "mine", "mountPath": PATH}
    after = inject(_pod(containers=[{"name": "main", "volumeMounts": [mount]}]), _INJECTION)
    assert after["spec"]["containers"] == [{"name": "main", "volumeMounts": [mount]}]
    assert f"something else is mounted at {PATH}" in str(refusal(after, _INJECTION))


def test_the_webhooks_document_says_the_same() -> None:
    assert webhook_document(_INJECTION) == {
        "backends": {
            "a": {"host": "10.96.0.10", "port": "9999", "kind": "gvirtus"},
            "l": {"host": "l.gvirtus-system.svc", "port": "14833", "kind": "lupine"},
        },
        "default": "a",
    }


_names = st.sampled_from(["GVIRTUS_CONFIG", "LUPINE_SERVER", "A"])
_env = st.lists(st.fixed_dictionaries({"name": _names, "value": st.sampled_from([PATH, "x"])}), max_size=3)
_mounts = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from([VOLUME, "v"]), "mountPath": st.sampled_from([PATH, "/d"])}),
    max_size=2,
    unique_by=lambda mount: mount["mountPath"],
)
_container = st.fixed_dictionaries({"name": st.just("c")}, optional={"env": _env, "volumeMounts": _mounts})
_pods = st.builds(
    lambda containers, init, volumes, backend: {
        "metadata": {"labels": {ENABLED_LABEL: "true"}, "annotations": backend},
        "spec": {"containers": containers, "initContainers": init, "volumes": volumes},
    },
    st.lists(_container, min_size=1, max_size=3),
    st.none() | st.lists(_container, max_size=2),
    st.none()
    | st.lists(st.sampled_from([{"name": VOLUME, "emptyDir": {}}, {"name": "v", "emptyDir": {}}]), max_size=1),
    st.none() | st.sampled_from([{}, {"gvirtus.io/backend": "a"}, {"gvirtus.io/backend": "l"}]),
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(_pods)
def test_twice_is_once_and_nothing_is_lost(pod: dict[str, Any]) -> None:
    once = inject(pod, _INJECTION)
    assert inject(once, _INJECTION) == once
    for before, after in zip(pod["spec"]["containers"], once["spec"]["containers"], strict=True):
        assert after.get("env", [])[: len(before.get("env", []))] == before.get("env", [])
        kept = [m for m in before.get("volumeMounts", []) if m["mountPath"] != PATH or m["name"] != VOLUME]
        assert all(mount in after.get("volumeMounts", []) for mount in kept)
