"""Preflight of node profiles where somebody else runs the GPU Operator."""

from typing import Any

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.profiles import judge_others_profiles, read_others_profiles
from cluster.preflight.run import run_preflight
from config.stack import StackSettings
from testbed.stacks import Json, changed, parse, time_slicing, x86
from tests.support.api_server import RUNTIME_CLASS, ApiServer, node

_POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
_CONFIG_MAPS = "/api/v1/namespaces/gpu-operator/configmaps"
_NEVER_DEPLOYED = DeployedState()


def _elsewhere(stack: Json | None = None) -> StackSettings:
    return parse(changed(stack or time_slicing(), "gpu_operator.install", False))


def _policy(config: str | None) -> Json:
    plugin: Json = {} if config is None else {"config": {"name": config}}
    return {"metadata": {"name": "cluster-policy"}, "spec": {"devicePlugin": plugin}}


@pytest.fixture
def cluster(config_path: str) -> Cluster:
    return Cluster.connect(parse(changed(x86(), "cluster.kubeconfig", config_path)).cluster)


def _findings(cluster: Cluster, settings: StackSettings, state: DeployedState = _NEVER_DEPLOYED) -> list[Finding]:
    return list(judge_others_profiles(settings, read_others_profiles(cluster, settings, state)))


def _serve(api: ApiServer, *profiles: str) -> None:
    api.serve(_POLICIES, {"items": [_policy("site")]})
    data = dict.fromkeys(profiles, "version: v1")
    api.serve(_CONFIG_MAPS, {"items": [{"metadata": {"name": "site"}, "data": data}]})


def test_a_profile_that_its_config_map_has_not_is_refused(cluster: Cluster, api: ApiServer) -> None:
    _serve(api, "any", "fractions")
    [finding] = _findings(cluster, _elsewhere())
    assert finding.fatal
    assert "node_profiles.sliced needs the profile 'sliced'" in finding.what
    assert "ConfigMap gpu-operator/site has any, fractions: the device plugin would not start on gpu-7, gpu-8." in (
        finding.what
    )
    assert "Add the profile 'sliced' there" in finding.remedy
    assert "Or remove node_profiles.sliced." in finding.remedy
    [asked] = [request for request in api.asked if request.path.startswith(_CONFIG_MAPS)]
    assert asked.query["fieldSelector"] == ["metadata.name=site"]


def test_profiles_that_it_has_are_used(cluster: Cluster, api: ApiServer) -> None:
    _serve(api, "fractions", "sliced")
    assert _findings(cluster, _elsewhere()) == []


def test_without_any_config_map_time_slicing_alone_has_no_effect(
    config_path: str, cluster: Cluster, api: ApiServer
) -> None:
    api.serve(_POLICIES, {"items": [_policy(None)]})
    [finding] = _findings(cluster, _elsewhere())
    assert not finding.fatal
    assert "nobody slices the GPUs of gpu-7, gpu-8, and KAI leaves them alone" in finding.what

    api.serve("/api/v1/nodes", {"items": [node(name) for name in ("gpu-7", "gpu-8", "gpu-9")]})
    api.serve("/api/v1/pods", {"items": []})
    api.serve(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}})
    settings = _elsewhere(changed(time_slicing(), "cluster.kubeconfig", config_path))
    [warning] = run_preflight(settings, _NEVER_DEPLOYED, preview=True).warnings
    assert finding.what in warning


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        pytest.param(parse(time_slicing()), _NEVER_DEPLOYED, id="it brings its own"),
        pytest.param(_elsewhere(x86()), _NEVER_DEPLOYED, id="it has none"),
        pytest.param(
            _elsewhere(),
            DeployedState(releases=frozenset({("gpu-operator", "gpu-operator")})),
            id="its own operator goes with this run",
        ),
    ],
)
def test_nobody_is_asked_where_no_others_profile_is_needed(
    settings: StackSettings, state: DeployedState, cluster: Cluster, api: ApiServer
) -> None:
    _serve(api, "any")
    assert _findings(cluster, settings, state) == []
    assert api.asked == []


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({}, id="a device plugin without the operator"),
        pytest.param({_POLICIES: [_policy("site")], _CONFIG_MAPS: []}, id="in another namespace"),
    ],
)
def test_what_nobody_can_see_is_not_judged(answers: dict[str, Any], cluster: Cluster, api: ApiServer) -> None:
    for path, items in answers.items():
        api.serve(path, {"items": items})
    assert _findings(cluster, _elsewhere()) == []


@pytest.mark.parametrize("path", [_POLICIES, _CONFIG_MAPS])
def test_who_may_not_see_them_goes_on_and_who_gets_no_answer_does_not(
    path: str, cluster: Cluster, api: ApiServer
) -> None:
    _serve(api, "any")
    api.fail(path, 403)
    assert _findings(cluster, _elsewhere()) == []
    api.fail(path, 503)
    with pytest.raises(ClusterUnreachableError):
        _findings(cluster, _elsewhere())
