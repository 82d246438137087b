"""Secrets with the login of a registry that settings name."""

import pytest

from cluster.access.client import Cluster
from cluster.errors import ClusterUnreachableError
from cluster.ownership.deployed_state import DeployedState
from cluster.preflight.findings import Finding
from cluster.preflight.pull_secrets import judge_missing_secrets, pull_secrets, read_missing_secrets
from cluster.preflight.run import run_preflight
from testbed.stacks import Json, changed, parse, x86
from tests.support.api_server import RUNTIME_CLASS, ApiServer, node

_SITE = {"pull_secrets": ["site"]}
_STACK = changed(changed(x86(), "kai.images", _SITE), "gpu_operator.images", _SITE)


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def _serve(api: ApiServer, *namespaces: str) -> None:
    for namespace in namespaces:
        api.serve(_path(namespace), {"items": [{"metadata": {"name": "site"}}]})


def _findings(cluster: Cluster, stack: Json = _STACK) -> list[Finding]:
    return list(judge_missing_secrets(read_missing_secrets(cluster, parse(stack))))


def test_a_secret_that_is_missing_is_named_with_its_namespaces(cluster: Cluster, api: ApiServer) -> None:
    _serve(api, "kai-scheduler")
    reservation, operator = _findings(cluster)
    assert not reservation.fatal
    assert (
        "kai.images.pull_secrets names the Secret 'site', which is not in namespace 'kai-resource-reservation': pods"
        in (reservation.what)
    )
    assert "gpu_operator.images.pull_secrets names the Secret 'site', which is not in namespace 'gpu-operator'" in (
        operator.what
    )
    assert "docs/air-gapped.md" in operator.remedy
    [asked] = [request for request in api.asked if request.path == _path("gpu-operator")]
    assert asked.query["fieldSelector"] == ["metadata.name=site"]
    assert "PartialObjectMetadata" in asked.headers["accept"], "nobody asks for its content"


def test_secrets_that_are_there_are_not_told(cluster: Cluster, api: ApiServer) -> None:
    _serve(api, "kai-scheduler", "kai-resource-reservation", "gpu-operator")
    assert _findings(cluster) == []


def test_where_no_secret_is_named_nobody_is_asked(cluster: Cluster, api: ApiServer) -> None:
    assert _findings(cluster, x86()) == []
    assert api.asked == []


def test_a_part_that_is_not_installed_needs_none() -> None:
    stack = changed(changed(_STACK, "gpu_operator.install", False), "monitoring", _SITE)
    named = {(secret.setting, secret.namespace) for secret in pull_secrets(parse(stack))}
    assert named == {
        ("kai.images.pull_secrets", "kai-scheduler"),
        ("kai.images.pull_secrets", "kai-resource-reservation"),
    }


def test_who_may_not_see_secrets_is_told_nothing(cluster: Cluster, api: ApiServer) -> None:
    api.fail(_path("kai-scheduler"), 403)
    assert _findings(cluster) == []


def test_a_server_that_does_not_answer_is_an_error(cluster: Cluster, api: ApiServer) -> None:
    api.fail(_path("kai-scheduler"), 503)
    with pytest.raises(ClusterUnreachableError):
        _findings(cluster)


def test_preflight_says_it(config_path: str, api: ApiServer) -> None:
    _serve(api, "kai-scheduler", "kai-resource-reservation")
    api.serve("/api/v1/nodes", {"items": [node("gpu-7")]})
    api.serve(RUNTIME_CLASS, {"metadata": {"name": "nvidia"}})
    settings = parse(changed(_STACK, "cluster.kubeconfig", config_path))
    [warning] = run_preflight(settings, DeployedState(), preview=True).warnings
    assert "names the Secret 'site', which is not in namespace 'gpu-operator'" in warning
