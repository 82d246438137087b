"""The page of metrics names what there is: every metric with its labels, every alert with its runbook."""

import re
from pathlib import Path

from agents.metrics.reader import Reader
from agents.metrics.samples import metrics
from manifests.monitoring.alerts import ALERTS
from manifests.monitoring.dashboards import of
from testbed.shared_gpus import gpu_node, queue, reservation, share, waiting
from testbed.stacks import ROOT, monitoring_full, parse
from tests.support.docs import anchors
from tests.unit.sharing_map.clusters import status_of

_DOCS = ROOT / "docs"
_PAGE = (_DOCS / "monitoring.md").read_text(encoding="utf-8")


def _documented() -> dict[str, set[str]]:
    """The labels of each metric, as the page's table has them."""
    rows = re.findall(r"(?m)^\| (`kai_anywhere_[^|]+)\|([^|]*)\|", _PAGE)
    return {
        name: set(re.findall(r"`(\w+)`", labels)) for names, labels in rows for name in re.findall(r"`(\w+)`", names)
    }


def _exported() -> dict[str, set[str]]:
    """The labels of each metric, as the exporter has them."""
    status = status_of(
        nodes=[gpu_node("jetson-1")],
        pods=[reservation("g"), share("a", "g"), waiting("b")],
        queues=[queue("robots", used="1")],
    )
    reader = Reader(lambda: status, 30)
    reader.look()
    exported = {}
    for family in (*metrics(status), *reader.registry.collect()):
        for sample in family.samples:
            if sample.name.startswith("kai_anywhere_") and not sample.name.endswith("_created"):
                exported[sample.name] = set(sample.labels)
    return exported


def test_every_metric_stands_there_with_its_labels() -> None:
    documented, exported = _documented(), _exported()
    assert documented.pop("kai_anywhere_unreadable") == {"what"}, "no sample where everything can be read"
    documented["kai_anywhere_pods_left_out"] = set()
    assert documented == exported


def test_every_alert_stands_there_with_its_runbook() -> None:
    rows = re.findall(r"(?m)^\| (`KaiAnywhere[^|]+)\|[^|]*\|([^|]*)\|", _PAGE)
    documented = {name: place for names, place in rows for name in re.findall(r"`(\w+)`", names)}
    assert list(documented) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        page, _, place = alert.runbook.partition("#")
        assert place in anchors(Path(_DOCS / page)), alert.runbook
        assert f"#{place}" in documented[alert.name]


def test_alerts_and_our_dashboard_ask_for_nothing_else() -> None:
    asked = {name for alert in ALERTS for name in re.findall(r"kai_anywhere_\w+", alert.expression)}
    for dashboard in of(parse(monitoring_full())).values():
        for panel in dashboard["panels"]:
            asked |= {name for target in panel["targets"] for name in re.findall(r"kai_anywhere_\w+", target["expr"])}
    assert asked - {"kai_anywhere_unreadable"} <= _exported().keys()
