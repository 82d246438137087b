"""A stack's connection is kept by its cluster's identity, readable by its owner only."""

import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.access import binding
from cluster.access.binding import bind, bound, bound_file, is_verified, standalone, unbind
from cluster.access.client import Cluster
from cluster.access.kubeconfig import ChosenContext, choose_context
from cluster.errors import ClusterError
from config.cluster import ClusterSettings, Distribution
from testbed.stacks import Json
from tests.support.api_server import UID, kubeconfig, write_kubeconfig

_EXEC = "client.authentication.k8s.io/v1beta1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(binding, "home", lambda: folder)
    return folder


def _settings(path: str, context: str | None = None) -> ClusterSettings:
    return ClusterSettings(distribution=Distribution.K3S, kubeconfig=path, context=context)


def _chosen(folder: Path, content: Json) -> ChosenContext:
    return choose_context(write_kubeconfig(folder / "kubeconfig", content))


def _credentials(home: Path) -> list[Path]:
    """The files of credentials below that home folder."""
    return [path for path in (home / ".kai-anywhere" / "credentials").rglob("*") if path.is_file()]


def _bound_user() -> Json:
    [entry] = yaml.safe_load(bound_file(UID).read_text(encoding="utf-8"))["users"]
    user: Json = entry["user"]
    return user


def _content(**user: Any) -> Json:  # noqa: ANN401 - JSON
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "edge", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority": "pki/ca.crt"}},
            {"name": "lab", "cluster": {"server": "https://10.0.0.2:6443"}},
        ],
        "users": [{"name": "me", "user": user}, {"name": "you", "user": {"token": "yours"}}],
        "contexts": [
            {"name": "default", "context": {"cluster": "edge", "user": "me", "namespace": "robots"}},
            {"name": "other", "context": {"cluster": "lab", "user": "you"}},
        ],
        "current-context": "default",
    }


def test_the_providers_path_follows_from_the_identity_alone(tmp_path: Path, home: Path) -> None:
    path = bind(_chosen(tmp_path, _content(token="mine")), UID)
    assert path == f"~/.kai-anywhere/clusters/{UID}"
    assert bound_file(UID) == home / ".kai-anywhere" / "clusters" / UID
    assert bound_file(UID).is_file()


def test_only_the_owner_can_read_the_connection_and_its_credentials(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="mine")), UID)
    assert stat.S_IMODE(bound_file(UID).stat().st_mode) == 0o600
    assert [path.name for path in bound_file(UID).parent.iterdir()] == [UID], "no half-written copy stays"
    [token] = _credentials(home)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700


def test_the_connection_holds_its_own_context_and_nobody_elses_credentials(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="mine")), UID)
    text = bound_file(UID).read_text(encoding="utf-8")
    kept = yaml.safe_load(text)
    assert kept["contexts"] == [
        {"name": "default", "context": {"cluster": "edge", "user": "me", "namespace": "robots"}}
    ]
    assert [user["name"] for user in kept["users"]] == ["me"]
    assert [cluster["name"] for cluster in kept["clusters"]] == ["edge"]
    assert "yours" not in text
    assert [credential.read_text() for credential in _credentials(home)] == ["mine"]


def test_paths_beside_the_kubeconfig_are_absolute_in_the_copy(tmp_path: Path) -> None:
    user = {
        "client-certificate": "me.crt",
        "client-key": "/keys/me.key",
        "exec": {"apiVersion": _EXEC, "command": "./bin/login"},
    }
    kept = standalone(_chosen(tmp_path, _content(**user)))
    assert kept["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "pki" / "ca.crt")
    assert kept["users"][0]["user"] == {
        "client-certificate": str(tmp_path / "me.crt"),
        "client-key": "/keys/me.key",
        "exec": {"apiVersion": _EXEC, "command": str(tmp_path / "bin" / "login")},
    }


def test_a_credential_plugin_on_path_stays_one(tmp_path: Path) -> None:
    plugin = {"apiVersion": _EXEC, "command": "aws", "args": ["eks", "get-token"]}
    assert standalone(_chosen(tmp_path, _content(exec=plugin)))["users"][0]["user"] == {"exec": plugin}


def test_the_connection_names_the_file_of_a_token_and_does_not_hold_it(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="mine")), UID)
    [token] = _credentials(home)
    assert _bound_user() == {"tokenFile": str(token)}
    assert "mine" not in bound_file(UID).read_text(encoding="utf-8")


def test_a_certificate_and_its_key_are_one_file_that_the_connection_names_twice(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(**{"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"})), UID)
    [pair] = _credentials(home)
    assert pair.read_text() == "cert\nkey\n"
    assert _bound_user() == {"client-certificate": str(pair), "client-key": str(pair)}


def test_a_key_beside_a_certificate_that_is_a_file_already_is_set_apart_alone(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(**{"client-certificate": "me.crt", "client-key-data": "a2V5"})), UID)
    [key] = _credentials(home)
    assert key.read_text() == "key\n"
    assert _bound_user() == {"client-certificate": str(tmp_path / "me.crt"), "client-key": str(key)}


def test_a_token_beside_its_file_is_dropped_since_clients_take_the_file(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="mine", tokenFile="/run/token")), UID)
    assert _bound_user() == {"tokenFile": "/run/token"}
    assert _credentials(home) == []


def test_a_key_that_is_not_base64_is_refused_and_nothing_is_kept(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ClusterError, match="client certificate or key is not Base64"):
        bind(_chosen(tmp_path, _content(**{"client-certificate-data": "Y2VydA==", "client-key-data": "a"})), UID)
    assert not bound_file(UID).exists()
    assert _credentials(home) == []


def test_a_renewed_credential_replaces_the_old_one(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="old")), UID)
    bind(_chosen(tmp_path, _content(token="new")), UID)
    assert [credential.read_text() for credential in _credentials(home)] == ["new"]


def test_a_credential_that_its_context_has_no_longer_is_removed(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="old")), UID)
    bind(_chosen(tmp_path, _content(exec={"apiVersion": _EXEC, "command": "aws"})), UID)
    assert _credentials(home) == []


def test_a_command_under_another_context_leaves_the_credentials_of_one_that_still_runs(
    tmp_path: Path, home: Path
) -> None:
    bind(_chosen(tmp_path, _content(token="admin")), UID)
    running = Path(_bound_user()["tokenFile"])
    content = _content()
    content["current-context"] = "other"
    bind(_chosen(tmp_path, content), UID)
    assert running.read_text() == "admin"
    assert {credential.read_text() for credential in _credentials(home)} == {"admin", "yours"}


def test_kubeconfigs_of_one_name_in_two_folders_have_credentials_each(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ours", "theirs"):
        folder = tmp_path / name
        folder.mkdir()
        write_kubeconfig(folder / "kubeconfig", _content(token=name))
        monkeypatch.chdir(folder)
        bind(choose_context("kubeconfig"), UID)
    assert {credential.read_text() for credential in _credentials(home)} == {"ours", "theirs"}


def test_a_connection_that_is_bound_again_keeps_naming_the_same_credentials(tmp_path: Path, home: Path) -> None:
    bind(_chosen(tmp_path, _content(token="mine")), UID)
    before = _bound_user()
    bind(choose_context(str(bound_file(UID))), UID)
    assert _bound_user() == before
    assert [credential.read_text() for credential in _credentials(home)] == ["mine"]


def test_the_copy_reaches_the_cluster_after_its_context_means_another_one(tmp_path: Path, api: Any) -> None:  # noqa: ANN401
    path = write_kubeconfig(tmp_path / "kubeconfig", kubeconfig(api.url))
    bind(choose_context(path), UID)
    write_kubeconfig(tmp_path / "kubeconfig", kubeconfig("https://127.0.0.1:1"))
    with closing(Cluster.connect(bound(_settings(path, "gone"), UID))) as connection:
        assert connection.uid() == UID


def test_the_connections_of_a_cluster_that_is_gone_are_forgotten_and_no_others(tmp_path: Path, home: Path) -> None:
    def named(authority: str | None) -> Json:
        content = _content(token="mine")
        content["clusters"][0]["cluster"] = {"server": "https://10.0.0.1:6443"}
        if authority is not None:
            content["clusters"][0]["cluster"]["certificate-authority-data"] = authority
        return content

    for uid, authority in (("gone", "YQ=="), ("stays", "Yg=="), ("public", None)):
        bind(_chosen(tmp_path, named(authority)), uid)
    unbind(Path(write_kubeconfig(tmp_path / "gone", named("YQ=="))))
    unbind(Path(write_kubeconfig(tmp_path / "public", named(None))))
    unbind(tmp_path / "never-was")
    assert sorted(credential.parent.name for credential in _credentials(home)) == ["public", "stays"]
    assert sorted(path.name for path in bound_file("stays").parent.iterdir()) == ["public", "stays"]


def test_an_identity_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="is not one that Kubernetes makes"):
        bind(_chosen(tmp_path, _content(token="mine")), "../../.ssh/config")


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path, home: Path) -> None:
    (home / ".kai-anywhere").write_text("a file")
    with pytest.raises(ClusterError, match=f"can't be kept in {home}"):
        bind(_chosen(tmp_path, _content(token="mine")), UID)


def test_credentials_are_not_shown_with_the_context(tmp_path: Path) -> None:
    assert "mine" not in repr(_chosen(tmp_path, _content(token="mine")))


@pytest.mark.parametrize(
    ("cluster", "verified"),
    [
        ({"server": "https://10.0.0.1:6443"}, True),
        ({"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": True}, False),
        ({"server": "http://10.0.0.1:8080"}, False),
    ],
)
def test_a_server_that_proves_nothing_is_known_as_such(tmp_path: Path, cluster: Json, verified: bool) -> None:
    content = _content(token="mine")
    content["clusters"][0]["cluster"] = cluster
    assert is_verified(_chosen(tmp_path, content)) is verified
