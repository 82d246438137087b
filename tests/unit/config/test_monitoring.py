"""Rules of `monitoring`: off by default, an image where it is on, labels only where something has them."""

import pytest

from testbed.stacks import STACKS, assert_refused, changed, jetson, monitoring, monitoring_full, parse, without


@pytest.mark.parametrize("name", sorted(STACKS.keys() - {"monitoring", "monitoring-full"}))
def test_no_stack_has_metrics_unless_it_says_so(name: str) -> None:
    assert not parse(without(STACKS[name](), "monitoring")).monitoring.enabled


def test_without_an_image_nothing_can_run() -> None:
    assert_refused(
        without(monitoring(), "monitoring.image"),
        "monitoring",
        "enabled is true, but image is not set. Build it with agents/metrics/Containerfile",
        "or set enabled: false",
    )


@pytest.mark.parametrize("image", ["metrics", "metrics:latest"])
def test_the_image_is_pinned(image: str) -> None:
    stack = changed(monitoring(), "monitoring.image", image)
    assert_refused(stack, "monitoring.image", "not an image with a fixed content", found=image)


def test_labels_that_nothing_gets_are_refused() -> None:
    assert_refused(
        changed(monitoring_full(), "monitoring.service_monitor", False),
        "monitoring",
        "service_monitor_labels is set, and service_monitor is false",
        "or set service_monitor: true",
    )


@pytest.mark.parametrize("key", ["service_monitor_labels", "dashboards.labels"])
def test_a_label_is_one_that_kubernetes_takes(key: str) -> None:
    stack = changed(monitoring_full(), f"monitoring.{key}", {"a b": "c"})
    assert_refused(stack, f"monitoring.{key}", "'a b: c' is not a label")


def test_dashboards_that_grafana_could_not_find_are_refused() -> None:
    stack = changed(monitoring_full(), "monitoring.dashboards.labels", {})
    assert_refused(stack, "monitoring.dashboards.labels", "at least 1 item is required")


@pytest.mark.parametrize("seconds", [0, 4, 121])
def test_the_interval_has_bounds(seconds: int) -> None:
    stack = changed(monitoring(), "monitoring.interval_seconds", seconds)
    assert_refused(stack, "monitoring.interval_seconds", "5" if seconds < 5 else "120", found=seconds)


def test_its_namespace_is_its_own() -> None:
    stack = changed(monitoring(), "monitoring.namespace", "kai-scheduler")
    assert_refused(stack, "", "monitoring.namespace 'kai-scheduler' is the namespace of KAI")


def test_where_it_is_off_its_namespace_may_be_anybodys() -> None:
    assert not parse(changed(jetson(), "monitoring.namespace", "kai-scheduler")).monitoring.enabled


@pytest.mark.parametrize(
    "label", [{"a": "b\u00e4c"}, {"a\u00e4b": "c"}, {"a..b/c": "d"}, {"-a/c": "d"}, {f"{'a' * 254}/c": "d"}]
)
def test_a_label_is_what_kubernetes_takes(label: dict[str, str]) -> None:
    key = "monitoring.dashboards.labels"
    assert_refused(changed(jetson(), key, label), key, "is not a label")
