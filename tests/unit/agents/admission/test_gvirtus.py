"""What a pod that asks for a remote GPU gets, and when it is refused."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from agents.admission.errors import RefusalError, SettingsError
from agents.admission.gvirtus import Backends, BackendsFile, mutate, warnings
from testbed.admission.objects import BACKENDS, gvirtus_pod
from testbed.stacks import Json

MOUNT = {
    "name": "gvirtus-config",
    "mountPath": "/run/gvirtus/properties.json",
    "subPath": "properties.json",
    "readOnly": True,
}
VARIABLE = {"name": "GVIRTUS_CONFIG", "value": "/run/gvirtus/properties.json"}
OWN: Json = {"name": "own", "image": "a:1", "env": [{"name": "GVIRTUS_CONFIG", "value": "/mine.json"}]}


def test_a_pod_gets_annotation_volume_variable_and_mount() -> None:
    pod = gvirtus_pod()
    after = mutate(pod, BACKENDS)
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
    after = mutate(pod, BACKENDS)
    assert [container["env"] for container in after["spec"]["initContainers"]] == [[VARIABLE], [VARIABLE]]


def test_a_second_pass_changes_nothing() -> None:
    once = mutate(gvirtus_pod({"name": "app", "image": "a:1"}, OWN), BACKENDS)
    assert mutate(once, BACKENDS) == once


def test_the_name_of_the_backend_is_written_back() -> None:
    assert mutate(gvirtus_pod(), BACKENDS)["metadata"]["annotations"]["gvirtus.io/backend"] == "near"


def test_a_volume_of_ours_without_defaults_is_taken_for_ours() -> None:
    once = json.loads(json.dumps(mutate(gvirtus_pod(), BACKENDS)))
    volume = once["spec"]["volumes"][0]["downwardAPI"]
    del volume["defaultMode"], volume["items"][0]["fieldRef"]["apiVersion"]
    assert mutate(once, BACKENDS) == once


def test_a_mount_at_our_path_is_the_users_where_the_variable_is_too() -> None:
    mounts = [{"name": "mine", "mountPath": "/run/gvirtus/properties.json"}]
    container = {"name": "app", "image": "a:1", "env": [VARIABLE], "volumeMounts": mounts}
    assert mutate(gvirtus_pod(container), BACKENDS)["spec"]["containers"] == [container]


def test_a_container_with_its_own_file_is_left_alone_and_told() -> None:
    pod = gvirtus_pod({"name": "app", "image": "a:1"}, OWN)
    app, own = mutate(pod, BACKENDS)["spec"]["containers"]
    assert own == OWN
    assert app["env"] == [VARIABLE]
    assert [text for text in warnings(pod, BACKENDS) if "own sets GVIRTUS_CONFIG itself" in text]
    assert mutate(gvirtus_pod(OWN), BACKENDS)["spec"]["containers"] == [OWN]


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_a_pod_that_does_not_ask_for_it_comes_back_as_it_was(value: str) -> None:
    pod = gvirtus_pod()
    pod["metadata"]["labels"]["gvirtus.io/enabled"] = value
    assert mutate(pod, BACKENDS) is pod
    assert not list(warnings(pod, BACKENDS))


def test_an_annotation_selects_the_backend() -> None:
    after = mutate(gvirtus_pod(**{"gvirtus.io/backend": "far"}), BACKENDS)
    assert "10.96.0.11" in after["metadata"]["annotations"]["gvirtus.io/properties"]


def test_lupine_is_one_variable_with_a_name() -> None:
    after = mutate(gvirtus_pod(**{"gvirtus.io/backend": "lupine"}), BACKENDS)
    assert after["spec"] == {
        "containers": [
            {
                "name": "app",
                "image": "app:1",
                "env": [{"name": "LUPINE_SERVER", "value": "lupine.gvirtus.svc:14833"}],
            }
        ]
    }


def test_an_unknown_backend_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        RefusalError,
        match=r"no GPU backend 'x'.*gvirtus.io/backend to one of: far, lupine, near; without it, pods get near",
    ):
        mutate(gvirtus_pod(**{"gvirtus.io/backend": "x"}), BACKENDS)


def test_without_a_default_a_pod_must_name_its_backend() -> None:
    with pytest.raises(RefusalError, match=r"names no backend.*far, lupine, near"):
        mutate(gvirtus_pod(), Backends(BACKENDS.backends, None))


def test_a_volume_of_our_name_that_is_another_is_refused_with_the_way_out() -> None:
    pod = gvirtus_pod()
    pod["spec"]["volumes"] = [{"name": "gvirtus-config", "emptyDir": {}}]
    with pytest.raises(RefusalError, match=r"gvirtus-config is taken.*rename"):
        mutate(pod, BACKENDS)


def test_a_mount_at_our_path_that_is_another_is_refused_with_the_way_out() -> None:
    mounts = [{"name": "mine", "mountPath": "/run/gvirtus/properties.json"}]
    pod = gvirtus_pod({"name": "app", "image": "a:1", "volumeMounts": mounts})
    with pytest.raises(RefusalError, match=r"something else is mounted at /run/gvirtus.*set GVIRTUS_CONFIG"):
        mutate(pod, BACKENDS)


def test_doubtful_pods_are_let_through_with_a_warning() -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod = gvirtus_pod({"name": "app", "image": "a:1", **limits}, **{"gpu-fraction": "0.5"})
    local, many = warnings(pod, BACKENDS)
    assert "share of a local GPU" in local
    assert "asks for 2 GPUs" in many


def test_a_usual_pod_brings_no_warning() -> None:
    assert not list(warnings(gvirtus_pod(), BACKENDS))
    assert not list(warnings(mutate(gvirtus_pod(), BACKENDS), BACKENDS))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "truncated"),
        ('{"backends": {}}', "default"),
        ('{"backends": {}, "default": "a"}', "'a' is none of the backends"),
        ('{"backends": {}, "default": null, "more": 1}', "unknown field `more`"),
        ('{"backends": {"a": {"host": "name", "port": "1", "kind": "gvirtus"}}, "default": null}', "name"),
        ('{"backends": {"a": {"host": "10.0.0.1", "port": 1, "kind": "gvirtus"}}, "default": null}', "Expected `str`"),
        ('{"backends": {"a": {"host": "10.0.0.1", "port": "x", "kind": "gvirtus"}}, "default": null}', "port"),
        ('{"backends": {"a": {"host": "10.0.0.1", "port": "1", "kind": "juice"}}, "default": null}', "juice"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "gvirtus.json").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=says):
        BackendsFile(tmp_path / "gvirtus.json").current()


def test_the_file_is_read_again_when_it_changes_and_may_come_late(tmp_path: Path) -> None:
    path = tmp_path / "gvirtus.json"
    file = BackendsFile(path)
    assert file.current() is None
    new = tmp_path / "new"
    for default in ("near", "far"):
        new.write_bytes(msgspec.json.encode(Backends(BACKENDS.backends, default)))
        new.replace(path)
        found = file.current()
        assert found is not None
        assert found.default == default
    path.unlink()
    assert file.current() is None


def test_the_file_is_followed_as_the_kubelet_swaps_it(tmp_path: Path) -> None:
    """Each version in a folder of its own, behind the one link `..data`, which is replaced at once."""
    path = tmp_path / "gvirtus.json"
    path.symlink_to("..data/gvirtus.json")
    file = BackendsFile(path)
    assert file.current() is None, "the ConfigMap is not there yet"
    for version, default in enumerate(("near", "far", None)):
        folder = tmp_path / f"..2026_{version}"
        folder.mkdir()
        content = msgspec.json.encode(Backends(BACKENDS.backends, default))
        (folder / "gvirtus.json").write_bytes(content)
        # Nothing but the file itself tells versions apart.
        os.utime(folder / "gvirtus.json", ns=(0, 0))
        (tmp_path / "..data_tmp").symlink_to(folder.name)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        found = file.current()
        assert found is not None
        assert found.default == default
    (tmp_path / "..data").unlink()
    assert file.current() is None
