"""Which cluster the commands look at that change nothing."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from operations.errors import OperationError
from operations.reading import hosts_without_cluster, open_place, qualified_name
from testbed.stacks import STACK_FILES, of_hosts_alone
from tests.support.api_server import ApiServer, kubeconfig, write_kubeconfig


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a stack file, and nobody's KUBECONFIG."""
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    monkeypatch.setattr("operations.reading.ROOT", tmp_path)
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_kubeconfig_is_the_cluster_with_and_without_a_stack(
    checkout: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(checkout / "config", kubeconfig(api.url)))
    with open_place("jetson") as place:
        assert (place.cluster.server, place.simulated) == (api.url, False)
        assert place.settings is not None
    with open_place(None) as place:
        assert (place.cluster.server, place.simulated, place.settings) == (api.url, False, None)


def test_a_named_context_is_taken_instead_of_the_current_one(
    checkout: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = kubeconfig("http://127.0.0.1:9")
    content["clusters"].append({"name": "lab", "cluster": {"server": api.url}})
    content["contexts"].append({"name": "lab", "context": {"cluster": "lab", "user": "admin"}})
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(checkout / "config", content))
    with open_place("jetson", "lab") as place:
        assert place.cluster.server == api.url


def test_who_names_neither_a_cluster_nor_a_stack_is_told_of_both(checkout: Path) -> None:
    with pytest.raises(OperationError, match=r"(?s)No kubeconfig at ~/.kube/config.*Or name a stack with --stack"):
        open_place(None).__enter__()
    (checkout / ".kube").mkdir()
    write_kubeconfig(checkout / ".kube" / "config", kubeconfig("http://127.0.0.1:9"))
    with open_place(None) as place:
        assert place.cluster.server == "http://127.0.0.1:9"


def test_a_stack_without_a_cluster_and_without_a_simulator_is_told_how_to_get_one(checkout: Path) -> None:
    with pytest.raises(OperationError, match=r"has no simulator that runs. Start it with `make up STACK=jetson`"):
        open_place("jetson").__enter__()
    assert not (checkout / ".simulator").exists(), "looking makes nothing"


def test_a_stack_has_the_name_of_the_project_that_is_run(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(checkout / "config", kubeconfig(api.url)))
    (checkout / "Pulumi.yaml").write_text("name: kai-anywhere\nruntime: python\n", encoding="utf-8")
    with open_place("jetson") as place:
        assert qualified_name(place, "jetson") == "kai-anywhere/jetson"
        theirs = tmp_path_factory.mktemp("theirs")
        (theirs / "Pulumi.yaml").write_text("name: gpus\nruntime: yaml\n", encoding="utf-8")
        (checkout / ".project").symlink_to(theirs)
        assert qualified_name(place, "jetson") == "gpus/jetson"
        simulated = replace(place, simulated=True)
        assert qualified_name(simulated, "jetson") == "kai-anywhere/jetson", "it runs this checkout's project"


def test_hosts_alone_have_no_simulator_but_the_cluster_that_is_named(
    checkout: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_hosts_alone(checkout / "Pulumi.jetson.yaml")
    with pytest.raises(OperationError, match=r"prepares hosts alone \(installs: hosts\).*KUBECONFIG, or --context"):
        open_place("jetson").__enter__()
    assert hosts_without_cluster("jetson", None) is not None
    assert hosts_without_cluster("jetson", "lab") is None, "whoever names a cluster wants it looked at"
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(checkout / "config", kubeconfig(api.url)))
    with open_place("jetson") as place:
        assert place.cluster.server == api.url
    assert hosts_without_cluster("jetson", None) is None


@pytest.mark.usefixtures("checkout")
def test_what_installs_something_and_no_stack_at_all_are_never_looked_at_without_a_cluster() -> None:
    assert hosts_without_cluster("jetson", None) is None
    assert hosts_without_cluster(None, None) is None
