"""What a pod that asks for a remote GPU gets, and when it is refused."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from agents.admission.endpoints import EndpointsFile
from agents.admission.errors import RefusalError, SettingsError
from agents.admission.review import Answer
from testbed.admission.objects import ENDPOINTS, gvirtus_pod, mutations, request, reservation_pod, served, stack
from testbed.stacks import Json, changed
from tests.support.gvirtus.cases import CASES

MOUNT = {
    "name": "gvirtus-config",
    "mountPath": "/run/gvirtus/properties.json",
    "subPath": "properties.json",
    "readOnly": True,
}
VARIABLE = {"name": "GVIRTUS_CONFIG", "value": "/run/gvirtus/properties.json"}
GVIRTUS = mutations()["gvirtus"]
OWN: Json = {"name": "own", "image": "a:1", "env": [{"name": "GVIRTUS_CONFIG", "value": "/mine.json"}]}


def mutate(pod: Json) -> Json:
    return dict(GVIRTUS.apply(pod, ENDPOINTS)[0])


def warnings(pod: Json) -> list[str]:
    return GVIRTUS.apply(pod, ENDPOINTS)[1]


def test_a_pod_gets_annotation_volume_variable_and_mount() -> None:
    pod = gvirtus_pod()
    after = mutate(pod)
    [communicator] = json.loads(after["metadata"]["annotations"]["gvirtus.io/properties"])["communicator"]
    endpoint = communicator["endpoint"]
    assert (endpoint["server_address"], endpoint["port"]) == ("10.96.0.10", "9999"), "the port must be text"
    [volume] = after["spec"]["volumes"]
    assert volume["downwardAPI"]["items"][0]["path"] == "properties.json"
    assert after["spec"]["containers"] == [
        {"name": "app", "image": "app:1", "env": [VARIABLE], "volumeMounts": [MOUNT]}
    ]
    assert "volumes" not in pod["spec"], "the pod that was given is not changed"


def test_init_containers_and_sidecars_get_it_too() -> None:
    pod = gvirtus_pod()
    pod["spec"]["initContainers"] = [
        {"name": "a", "image": "a:1"},
        {"name": "b", "image": "b:1", "restartPolicy": "Always"},
    ]
    after = mutate(pod)
    assert [container["env"] for container in after["spec"]["initContainers"]] == [[VARIABLE], [VARIABLE]]


def test_a_second_pass_changes_nothing() -> None:
    once = mutate(gvirtus_pod({"name": "app", "image": "a:1"}, OWN))
    assert mutate(once) == once


def test_the_name_of_the_backend_is_written_back() -> None:
    assert mutate(gvirtus_pod())["metadata"]["annotations"]["gvirtus.io/backend"] == "near"


def test_a_volume_of_ours_without_defaults_is_taken_for_ours() -> None:
    once = json.loads(json.dumps(mutate(gvirtus_pod())))
    volume = once["spec"]["volumes"][0]["downwardAPI"]
    del volume["defaultMode"], volume["items"][0]["fieldRef"]["apiVersion"]
    assert mutate(once) == once


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_mount_at_our_path_is_the_users_where_the_variable_is_too(ending: str) -> None:
    mounts = [{"name": "mine", "mountPath": f"/run/gvirtus/properties.json{ending}"}]
    container = {"name": "app", "image": "a:1", "env": [VARIABLE], "volumeMounts": mounts}
    assert mutate(gvirtus_pod(container))["spec"]["containers"] == [container]


def test_a_container_with_its_own_file_is_left_alone_and_told() -> None:
    pod = gvirtus_pod({"name": "app", "image": "a:1"}, OWN)
    app, own = mutate(pod)["spec"]["containers"]
    assert own == OWN
    assert app["env"] == [VARIABLE]
    assert [text for text in warnings(pod) if "own sets GVIRTUS_CONFIG itself" in text]
    assert mutate(gvirtus_pod(OWN))["spec"]["containers"] == [OWN]


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_a_pod_that_does_not_ask_for_it_comes_back_as_it_was(value: str) -> None:
    pod = gvirtus_pod()
    pod["metadata"]["labels"]["gvirtus.io/enabled"] = value
    assert not GVIRTUS.is_for(pod, "default")
    answer = served().answer("gvirtus", request(pod))
    assert answer.allowed
    assert answer.patch is None
    assert not answer.warnings


def test_an_annotation_selects_the_backend() -> None:
    after = mutate(gvirtus_pod(**{"gvirtus.io/backend": "far"}))
    assert "10.96.0.11" in after["metadata"]["annotations"]["gvirtus.io/properties"]


def test_a_backend_whose_address_nobody_told_is_refused_and_told_to_come_again() -> None:
    with pytest.raises(RefusalError, match=r"does not know the backends of remote GPUs yet.*try again") as caught:
        GVIRTUS.apply(gvirtus_pod(**{"gvirtus.io/backend": "far"}), {"near": ENDPOINTS["near"]})
    assert caught.value.code == 503


def test_what_a_pod_says_is_text_and_no_mark() -> None:
    with pytest.raises(RefusalError, match=r"no GPU backend '\{host\}'"):
        mutate(gvirtus_pod(**{"gvirtus.io/backend": "{host}"}))
    pod = gvirtus_pod({"name": "app", "image": "a:1", "env": [{"name": "A", "value": "{host}:{port}"}]})
    assert mutate(pod)["spec"]["containers"][0]["env"][0]["value"] == "{host}:{port}"


def test_a_container_that_says_the_variable_twice_and_once_otherwise_is_left_alone() -> None:
    """As the policies judge it."""
    own = {"name": "app", "image": "a:1", "env": [VARIABLE, {"name": "GVIRTUS_CONFIG", "value": "/mine.json"}]}
    assert mutate(gvirtus_pod(own))["spec"]["containers"] == [own]


def test_a_volume_of_our_name_is_nobodys_business_with_lupine() -> None:
    pod = gvirtus_pod(**{"gvirtus.io/backend": "lupine"})
    pod["spec"]["volumes"] = [{"name": "gvirtus-config", "emptyDir": {}}]
    assert mutate(pod)["spec"]["volumes"] == pod["spec"]["volumes"]


def test_an_own_variable_of_lupine_stays_without_a_warning() -> None:
    own = {"name": "app", "image": "a:1", "env": [{"name": "LUPINE_SERVER", "value": "elsewhere:1"}]}
    pod = gvirtus_pod(own, **{"gvirtus.io/backend": "lupine"})
    assert mutate(pod)["spec"]["containers"] == [own]
    assert not warnings(pod)


@pytest.mark.parametrize("name", CASES)
def test_a_second_pass_changes_nothing_of_the_cases_that_run_on_a_real_api_server(name: str) -> None:
    pod = CASES[name]()
    chosen = {"gpu-a": "near", "gpu-b": "lupine", "gpu-c": "far"}
    if notes := pod["metadata"].get("annotations"):
        notes |= {key: chosen[value] for key, value in notes.items() if key == "gvirtus.io/backend"}
    once = mutate(pod)
    assert mutate(once) == once
    assert (once == pod) == (name == "lupine set by hand"), "all others get something"


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": [], "initContainers": None}])
@pytest.mark.parametrize("mutation", ["gvirtus", "reservation"])
def test_a_pod_without_containers_is_left_to_the_api_server_which_refuses_it(mutation: str, spec: Json) -> None:
    pod = {"gvirtus": gvirtus_pod(), "reservation": reservation_pod()}[mutation]
    pod["spec"] = spec | {"nodeName": "jetson-1"}
    assert served().answer(mutation, request(pod)) == Answer(allowed=True)


def test_a_mount_in_the_way_of_an_init_container_is_refused_too() -> None:
    pod = gvirtus_pod()
    mounts = [{"name": "mine", "mountPath": "/run/gvirtus/properties.json"}]
    pod["spec"]["initContainers"] = [{"name": "first", "image": "a:1", "volumeMounts": mounts}]
    with pytest.raises(RefusalError, match=r"something else is mounted at /run/gvirtus"):
        mutate(pod)


def test_lupine_is_one_variable_with_an_address() -> None:
    after = mutate(gvirtus_pod(**{"gvirtus.io/backend": "lupine"}))
    assert after["spec"] == {
        "containers": [
            {
                "name": "app",
                "image": "app:1",
                "env": [{"name": "LUPINE_SERVER", "value": "10.96.0.12:14833"}],
            }
        ]
    }


def test_an_unknown_backend_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        RefusalError,
        match=r"no GPU backend 'x'.*gvirtus.io/backend to one of: far, lupine, near; without it, pods get near",
    ):
        mutate(gvirtus_pod(**{"gvirtus.io/backend": "x"}))


def test_without_a_default_a_pod_must_name_its_backend() -> None:
    without = mutations(changed(stack(), "gvirtus.default_backend", None))["gvirtus"]
    with pytest.raises(RefusalError, match=r"names no backend.*far, lupine, near$"):
        without.apply(gvirtus_pod(), ENDPOINTS)
    assert without.apply(gvirtus_pod(**{"gvirtus.io/backend": "far"}), ENDPOINTS)[1] == []


def test_a_volume_of_our_name_that_is_another_is_refused_with_the_way_out() -> None:
    pod = gvirtus_pod()
    pod["spec"]["volumes"] = [{"name": "gvirtus-config", "emptyDir": {}}]
    with pytest.raises(RefusalError, match=r"gvirtus-config is taken.*rename"):
        mutate(pod)


@pytest.mark.parametrize("ending", ["", "/"])
def test_a_mount_at_our_path_that_is_another_is_refused_with_the_way_out(ending: str) -> None:
    mounts = [{"name": "mine", "mountPath": f"/run/gvirtus/properties.json{ending}"}]
    pod = gvirtus_pod({"name": "app", "image": "a:1", "volumeMounts": mounts})
    with pytest.raises(RefusalError, match=r"something else is mounted at /run/gvirtus.*set GVIRTUS_CONFIG"):
        mutate(pod)


def test_doubtful_pods_are_let_through_with_a_warning() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod = gvirtus_pod({"name": "app", "image": "a:1", **limits}, **{"gpu-fraction": "0.5"})
    local, many = warnings(pod)
    assert "share of a local GPU" in local
    assert "asks for 2 GPUs" in many


def test_a_usual_pod_brings_no_warning() -> None:
    assert not warnings(gvirtus_pod())
    assert not warnings(mutate(gvirtus_pod()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ('{"a": 1}', "Expected `str`"),
        ('{"a": {"host": "10.0.0.1", "port": "1"}}', "Expected `str`"),
        ('{"a": "10.0.0.1"}', "regex"),
        ('{"a": "10.0.0.1:x"}', "regex"),
        ('{"a": "10.0.0.1:0"}', "regex"),
        ('{"a": "10.0.0.1:1:2"}', "regex"),
        ('{"a": "10.0.0.1\\",\\"x\\":\\"y:1"}', "regex"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "endpoints.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=says):
        EndpointsFile(tmp_path / "endpoints.json").current()


def test_the_file_is_read_again_when_it_changes_and_may_come_late(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    file = EndpointsFile(path)
    assert file.current() == {}
    new = tmp_path / "new"
    for addresses in ({"near": "10.0.0.1:1"}, {"near": "10.0.0.2:1"}):
        new.write_bytes(msgspec.json.encode(addresses))
        new.replace(path)
        assert file.current() == addresses
    path.unlink()
    assert file.current() == {}


def test_the_file_is_followed_as_the_kubelet_swaps_it(tmp_path: Path) -> None:
    """Each version in a folder of its own, behind the one link `..data`, which is replaced at once."""
    path = tmp_path / "endpoints.json"
    path.symlink_to("..data/endpoints.json")
    file = EndpointsFile(path)
    assert file.current() == {}, "the ConfigMap is not there yet"
    for version in range(3):
        folder = tmp_path / f"..2026_{version}"
        folder.mkdir()
        addresses = {"near": f"10.0.0.{version}:1"}
        (folder / "endpoints.json").write_bytes(msgspec.json.encode(addresses))
        # Nothing but the file itself tells versions apart.
        os.utime(folder / "endpoints.json", ns=(0, 0))
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        assert file.current() == addresses
    (tmp_path / "..data").unlink()
    assert file.current() == {}
