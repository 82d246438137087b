"""Where charts come from, and what namespaces carry."""

import pytest

from config.charts import ChartSettings
from manifests.objects import ChartReference, namespace, resolve_chart
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin


@pytest.mark.parametrize(
    ("settings", "pin", "reference"),
    [
        (ChartSettings(), KAI_SCHEDULER, ChartReference(KAI_SCHEDULER.source, None, KAI_SCHEDULER.version)),
        (ChartSettings(), GPU_OPERATOR, ChartReference("gpu-operator", GPU_OPERATOR.source, GPU_OPERATOR.version)),
        (ChartSettings(version="v1"), GPU_OPERATOR, ChartReference("gpu-operator", GPU_OPERATOR.source, "v1")),
        (
            ChartSettings(source="https://charts.example.com"),
            KAI_SCHEDULER,
            ChartReference("kai-scheduler", "https://charts.example.com", KAI_SCHEDULER.version),
        ),
        (
            ChartSettings(source="oci://registry.example.com/op", version="v2"),
            GPU_OPERATOR,
            ChartReference("oci://registry.example.com/op", None, "v2"),
        ),
        (ChartSettings(source="/srv/chart"), GPU_OPERATOR, ChartReference("/srv/chart", None, None)),
        (ChartSettings(source="../chart.tgz"), GPU_OPERATOR, ChartReference("../chart.tgz", None, None)),
    ],
)
def test_a_chart_is_the_pinned_one_unless_the_stack_says_otherwise(
    settings: ChartSettings, pin: ChartPin, reference: ChartReference
) -> None:
    assert resolve_chart(settings, pin) == reference


def test_a_namespace_says_that_it_is_ours() -> None:
    assert namespace("a")["metadata"]["labels"] == {"app.kubernetes.io/part-of": "kai-anywhere"}


def test_a_namespace_enforces_the_pod_security_level_that_it_is_given() -> None:
    labels = namespace("a", pod_security="baseline")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "baseline"
