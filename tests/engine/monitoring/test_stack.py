"""A stack with metrics on the real engine: refused without the Prometheus Operator's kinds, up, the same, and away."""

import os
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
import toolchain
from manifests.monitoring import alerts
from testbed.engine import Stack
from testbed.inventory import inventory
from testbed.stacks import Json, changed, monitoring_full
from testbed.waiting import eventually
from tests.support.checkout import shell
from tests.support.docs import command
from toolchain.programs import KUBECTL

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP = "monitoring.coreos.com"
_NAMESPACE = "gpu-metrics"


def _define(api: httpx2.Client, kind: str) -> None:
    """A kind of the Prometheus Operator's, which takes anything."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    api.post(_DEFINITIONS, json=definition).raise_for_status()
    eventually(lambda: api.get(f"/apis/{_GROUP}/v1/{plural}").is_success)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """The stack, not yet up."""
    # Pods there are records: none of them needs a Secret of a registry.
    return new_stack(changed(monitoring_full(), "monitoring.pull_secrets", []))


def test_a_stack_with_metrics_comes_stays_and_goes(
    stack: Stack, api: httpx2.Client, cluster: simulator.ControlPlane, tmp_path: Path
) -> None:
    before = inventory(api)
    refused = stack.up(expect=None)
    assert "the cluster does not know ServiceMonitor and PrometheusRule" in refused.output
    assert inventory(api) == before

    for kind in ("ServiceMonitor", "PrometheusRule"):
        _define(api, kind)
    stack.up()
    assert set(stack.up().changes) == {"same"}
    monitors = api.get(f"/apis/{_GROUP}/v1/namespaces/{_NAMESPACE}/servicemonitors").json()["items"]
    assert {monitor["metadata"]["name"] for monitor in monitors} == {"kai-anywhere-kai", "kai-anywhere-metrics"}
    pods = api.get(f"/api/v1/namespaces/{_NAMESPACE}/pods").json()["items"]
    assert [pod["status"]["phase"] for pod in pods] == ["Running"]

    own = changed(stack.settings, "monitoring.service_monitor_labels", {})
    stack.settings = changed(own, "monitoring.service_monitor", False)
    stack.up()
    kubectl = toolchain.install((KUBECTL,))[KUBECTL]
    script = command(
        "monitoring.md", "kubectl --namespace kai-anywhere-monitoring get configmap kai-anywhere-alerts \\"
    )
    path = f"{Path(kubectl).parent}:{os.environ['PATH']}"
    shell(
        script.replace("kai-anywhere-monitoring", _NAMESPACE),
        tmp_path,
        {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)},
    )
    rules = yaml.safe_load((tmp_path / "alerts.yaml").read_text(encoding="utf-8"))
    assert rules == {"groups": alerts.groups()}

    stack.settings = changed(stack.settings, "monitoring", {"enabled": False})
    assert set(stack.up().changes) == {"same", "delete"}
    assert not [name for name in inventory(api) if _NAMESPACE in name or "kai-anywhere-metrics" in name]
