"""The steps before anything is registered: what the stack's file says."""

import json

import pulumi
import pytest

from components.installation import install, settings_of_file
from config.stack import StackConfigError
from testbed.stacks import Json, changed, jetson
from tests.support import recording_monitor
from tests.support.recording_monitor import Graph, record


def test_a_project_of_another_name_than_its_settings_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_monitor, "PROJECT", "gpu-platform")

    def program() -> None:
        pulumi.runtime.set_all_config({"kai-anywhere:settings": "{}"})
        with pytest.raises(StackConfigError) as caught:
            settings_of_file("Pulumi.prod.yaml")
        assert "has kai-anywhere:settings, and the project is called 'gpu-platform' in Pulumi.yaml" in str(caught.value)
        assert "write `name: kai-anywhere` there" in str(caught.value)
        assert settings_of_file("Pulumi.prod.yaml", "kai-anywhere") == ("{}", None), "as the component reads it"
        pulumi.runtime.set_all_config({"gpu-platform:settings": "{}"})
        assert settings_of_file("Pulumi.prod.yaml") == ("{}", None)

    record(program)


_NAMED, _FILE = ("cluster.context", "lab"), ("cluster.kubeconfig", "/nonexistent")


def _install(stack: Json, key: str | None, *, deployed: bool = False) -> Graph:
    """A preview where Pulumi's own ways name a cluster: a key of the configuration, or else a provider."""
    top = "urn:pulumi:test::kai-anywhere::kai-anywhere:index:KaiAnywhere"
    provider = {"type": "pulumi:providers:kubernetes", "outputs": {"clusterIdentifier": "a-cluster"}}
    state = {f"{top}$pulumi:providers:kubernetes::kai-anywhere-cluster": provider} if deployed else {}

    def program() -> None:
        opts = None
        if key is None:
            opts = pulumi.ResourceOptions(providers={"kubernetes": pulumi.ProviderResource("kubernetes", "lab", {})})
        else:
            pulumi.runtime.set_all_config({key: "lab"}, [key])
        install("kai-anywhere", json.dumps(stack), file="Pulumi.test.yaml", opts=opts)

    return record(program, state={"outputs": state})


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("kubernetes:context", "the stack's configuration has kubernetes:context"),
        ("kubernetes:kubeconfig", "the stack's configuration has kubernetes:kubeconfig"),
        (None, "'kai-anywhere' was given a provider of Kubernetes"),
    ],
)
def test_a_cluster_that_is_named_in_pulumis_own_ways_alone_is_not_passed_over_for_kubectls_current_one(
    key: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(StackConfigError) as caught:
        _install(jetson(), key)
    assert says in str(caught.value)
    assert "Say cluster.context in the settings" in str(caught.value)
    assert "KaiAnywhere:kai-anywhere" in _install(changed(jetson(), *_NAMED), key).by_key
    if key == "kubernetes:context":
        with pytest.raises(StackConfigError, match="kubectl's current context"):
            _install(changed(jetson(), *_FILE), key)
    else:
        assert "KaiAnywhere:kai-anywhere" in _install(changed(jetson(), *_FILE), key).by_key


@pytest.mark.parametrize("key", ["kubernetes:namespace", "kai-anywhere:context", "aws:context"])
def test_other_keys_name_no_cluster(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert "KaiAnywhere:kai-anywhere" in _install(jetson(), key).by_key


def test_a_stack_that_has_its_cluster_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert "KaiAnywhere:kai-anywhere" in _install(jetson(), "kubernetes:context", deployed=True).by_key
    with pytest.raises(StackConfigError):
        _install(jetson(), "kubernetes:context")
