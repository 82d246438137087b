"""The exporter's objects: least privilege, one way to be scraped, dashboards that Grafana finds."""

import json
import re
from typing import Any

import pytest

from manifests.monitoring import dashboards
from manifests.monitoring.objects import NAME, objects
from manifests.objects import Manifest
from testbed.stacks import Json, changed, jetson, mixed, monitoring, monitoring_full, parse, without


def _made(stack: Json) -> dict[str, Manifest]:
    return {name: stack_object.manifest for name, stack_object in objects(parse(stack)).items()}


def test_nothing_of_it_is_there_by_default() -> None:
    assert objects(parse(jetson())) == {}
    assert objects(parse(changed(monitoring(), "monitoring.enabled", False))) == {}


def test_its_role_lists_what_the_map_is_made_of_and_nothing_else() -> None:
    rules = _made(monitoring())["cluster-role"]["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {
        *("nodes", "pods"),
        *("queues", "podgroups", "bindrequests", "configs"),
    }
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list"}
    assert not [name for name in _made(monitoring()) if name == "role" or "secret" in name]


def test_its_pod_can_write_nothing_and_is_nobody() -> None:
    spec = _made(monitoring())["deployment"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert "volumes" not in spec
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(resource.startswith("nvidia.com/") for resource in container["resources"]["limits"])


@pytest.mark.parametrize("operator", [True, False])
def test_it_is_scraped_in_one_way_and_not_in_two(*, operator: bool) -> None:
    stack = monitoring_full() if operator else monitoring()
    made = _made(stack)
    annotations = made["service"]["metadata"]["annotations"]
    assert ("prometheus.io/scrape" in annotations) is not operator
    assert ("service-monitor" in made) is operator
    assert made["alerts"]["kind"] == ("PrometheusRule" if operator else "ConfigMap")


def test_what_prometheus_selects_by_has_the_labels_that_the_settings_say() -> None:
    for name in ("service-monitor", "kai-service-monitor", "alerts"):
        assert _made(monitoring_full())[name]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    selector = _made(monitoring_full())["service-monitor"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= _made(monitoring_full())["service"]["metadata"]["labels"].items()


def test_dcgm_has_a_dashboard_where_it_runs() -> None:
    assert "dashboard-dcgm" in _made(monitoring_full())
    assert "dashboard-dcgm" not in _made(changed(monitoring_full(), "gpu_operator.dcgm_exporter.enabled", False))
    assert "dashboard-dcgm" not in _made(monitoring()), "DCGM has no Tegra support"


def test_a_dashboard_is_a_file_that_grafanas_sidecar_finds() -> None:
    for name, manifest in _made(monitoring_full()).items():
        if name.startswith("dashboard-"):
            assert manifest["metadata"]["labels"]["grafana_dashboard"] == "yes"
            [(file, text)] = manifest["data"].items()
            assert file.endswith(".json")
            assert json.loads(text)["uid"] == file.removesuffix(".json")


def _panels() -> list[dict[str, Any]]:
    return [panel for dashboard in dashboards.of(parse(monitoring_full())).values() for panel in dashboard["panels"]]


def test_panels_stand_beside_each_other_and_never_on_each_other() -> None:
    for dashboard in dashboards.of(parse(monitoring_full())).values():
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in dashboard["panels"])
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24


def test_every_panel_asks_the_prometheus_that_its_reader_chose() -> None:
    for panel in _panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]


def test_every_metric_of_a_panel_is_of_the_clusters_that_its_reader_chose() -> None:
    for dashboard in dashboards.of(parse(monitoring_full())).values():
        _, cluster = dashboard["templating"]["list"]
        assert (cluster["name"], cluster["allValue"]) == ("cluster", ".*")
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                names = re.findall(r"\b(?:kai|DCGM)_\w+(.?)", target["expr"])
                assert names
                assert target["expr"].count('{cluster=~"$cluster"}') == len(names), target["expr"]


def test_the_pull_secrets_and_the_interval_are_the_settings() -> None:
    deployment = _made(monitoring_full())["deployment"]["spec"]["template"]["spec"]
    assert deployment["imagePullSecrets"] == [{"name": "site"}]
    assert deployment["containers"][0]["args"][1:3] == ["--interval-seconds", "60"]
    assert "imagePullSecrets" not in _made(monitoring())["deployment"]["spec"]["template"]["spec"]


def test_a_mixed_stack_may_have_it_too() -> None:
    stack = changed(mixed(), "monitoring", without(monitoring(), "cluster")["monitoring"])
    assert _made(stack)["deployment"]["metadata"]["name"] == NAME
