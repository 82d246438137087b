"""Which kubeconfig and context a stack means."""

import errno
import os
from pathlib import Path

import pytest

from cluster.access.kubeconfig import choose_context, for_its_cluster, in_cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from testbed.stacks import Json
from tests.support.api_server import kubeconfig, write_kubeconfig


def _named(context: str, server: str) -> Json:
    content: Json = kubeconfig(server)
    content["contexts"][0]["name"] = context
    return content | {"current-context": context}


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """KUBECONFIG names a missing file, then two with one context each."""
    edge = write_kubeconfig(tmp_path / "edge", _named("edge", "https://127.0.0.1:1"))
    lab = write_kubeconfig(tmp_path / "lab", _named("lab", "https://127.0.0.1:2"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), edge, lab]))
    return edge, lab


def test_of_several_files_the_first_current_context_counts(two_files: tuple[str, str]) -> None:
    chosen = choose_context()
    assert (chosen.name, chosen.file) == ("edge", two_files[0])
    assert chosen.config.cluster.server == "https://127.0.0.1:1"


def test_of_several_files_the_one_with_the_named_context_counts(two_files: tuple[str, str]) -> None:
    chosen = choose_context(context="lab")
    assert (chosen.name, chosen.file) == ("lab", two_files[1])
    assert chosen.config.cluster.server == "https://127.0.0.1:2"


def test_commands_of_a_text_are_for_the_context_that_was_looked_at(two_files: tuple[str, str], tmp_path: Path) -> None:
    """Pasted as they stand, they would change the cluster of kubectl's own context."""
    text = "helm uninstall a, then kubectl cordon b, as kubectl writes it. See kubectl --namespace c get pods"
    assert for_its_cluster(text, choose_context()) == text, "kubectl takes this one by itself"
    there = f"--kubeconfig {two_files[1]}"
    other = (
        f"helm {there} --kube-context lab uninstall a, then kubectl {there} --context lab cordon b, as kubectl writes "
        f"it. See kubectl {there} --context lab --namespace c get pods"
    )
    assert for_its_cluster(text, choose_context(context="lab")) == other
    alone = write_kubeconfig(tmp_path / "alone", _named("edge", "https://127.0.0.1:3"))
    assert f"--kubeconfig {alone} --context edge" in for_its_cluster(text, choose_context(alone)), "of another file"


@pytest.mark.usefixtures("two_files")
def test_a_context_in_none_of_several_files_is_an_error_with_all_that_exist() -> None:
    with pytest.raises(ClusterError, match=r"has no context 'roof'. Contexts: edge, lab\."):
        choose_context(context="roof")


def test_without_any_of_the_files_there_is_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    with pytest.raises(ClusterUnreachableError, match="No kubeconfig at"):
        choose_context()


def test_the_home_folder_of_nobody_holds_no_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "~no-such-user/.kube/config")
    with pytest.raises(ClusterUnreachableError, match="No kubeconfig at ~no-such-user/"):
        choose_context()
    with pytest.raises(ClusterUnreachableError, match="No kubeconfig at ~no-such-user/"):
        choose_context("~no-such-user/.kube/config")


def test_a_folder_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(ClusterUnreachableError, match=f"^{tmp_path} is a folder, not a kubeconfig"):
        choose_context()


@pytest.mark.parametrize("step", ["stat", "open"], ids=["its folder is closed", "it is its owner's alone"])
def test_a_kubeconfig_without_the_right_to_it_is_told_with_the_way_to_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    file = tmp_path / "k3s.yaml"
    file.touch()
    # Root would read it whatever its mode is.
    monkeypatch.setattr(Path, step, refuse)
    with pytest.raises(ClusterError, match=rf'{file} can.t be read: you lack.*\n.* -o "\$USER" {file} COPY$'):
        choose_context(str(file))


def test_a_file_in_the_settings_wins_over_the_environment(two_files: tuple[str, str]) -> None:
    assert choose_context(two_files[1]).name == "lab"


@pytest.mark.parametrize("text", ["", "{}", "contexts:\nclusters:\nusers:\n"])
def test_an_empty_file_has_no_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "config").write_text(text, encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ClusterError, match=r"has no current context\. Contexts: none\.\nIt names no cluster: set"):
        choose_context()


def test_a_file_that_is_no_mapping_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("apiVersion", encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ClusterError, match=r"can't be read: it is not a mapping"):
        choose_context()


def test_what_is_wrong_with_a_files_yaml_is_said_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("contexts: [", encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ClusterError, match="can't be read") as caught:
        choose_context()
    assert f'in "{tmp_path / "config"}", line 1' in str(caught.value)


def test_a_pod_reaches_its_cluster_by_what_the_kubelet_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "namespace", "ca.crt"):
        (tmp_path / name).write_text(name, encoding="ascii")
    chosen = in_cluster(str(tmp_path))
    assert chosen.config.cluster.server == "https://[fd00::1]:443"
    assert chosen.config.cluster.certificate_auth == str(tmp_path / "ca.crt")
    user = chosen.config.user
    assert user is not None
    assert user.token_file == str(tmp_path / "token"), "read again when the kubelet has renewed it"
    assert "token" not in repr(chosen)


@pytest.mark.parametrize("without", ["token", "variable"])
def test_a_process_that_is_in_no_pod_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if without == "variable":
        (tmp_path / "token").touch()
        (tmp_path / "namespace").touch()
    with pytest.raises(ClusterUnreachableError, match="does not run in a pod"):
        in_cluster(str(tmp_path))
