"""Prometheus' own promtool loads the alerts and what dashboards ask; the alerts fire when they should."""

import json
import math
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from annotated_types import Le
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

import toolchain
from agents.metrics.reader import Reader
from agents.metrics.samples import metrics
from cluster.access.lists import Unseen
from config.monitoring import MonitoringSettings
from manifests.monitoring import alerts, dashboards
from manifests.monitoring.objects import objects
from testbed.shared_gpus import frontend, gpu_node, pod, queue, reservation, share, waiting
from testbed.stacks import Json, monitoring, monitoring_full, parse
from tests.support.programs import PROMTOOL
from tests.unit.sharing_map.clusters import status_of

_MIB = 1024 * 1024


@pytest.fixture(scope="module")
def promtool() -> Path:
    """Prometheus' own."""
    return Path(toolchain.install((PROMTOOL,))[PROMTOOL])


def _run(promtool: Path, *arguments: str) -> str:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rules(stack: Json) -> str:
    """The rules as the stack installs them."""
    manifest = objects(parse(stack))["alerts"].manifest
    if manifest["kind"] == "PrometheusRule":
        return yaml.safe_dump(manifest["spec"])
    return str(manifest["data"]["alerts.yaml"])


@pytest.mark.parametrize("stack", [monitoring, monitoring_full])
def test_prometheus_loads_the_alerts_of_both_ways(stack: Any, promtool: Path, tmp_path: Path) -> None:  # noqa: ANN401 - a builder of stacks
    file = tmp_path / "alerts.yaml"
    file.write_text(_rules(stack()), encoding="utf-8")
    said = _run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert f"SUCCESS: {len(alerts.ALERTS)} rules found" in said


def _expressions() -> Iterator[tuple[str, str]]:
    """Every query of every dashboard, as Grafana asks it for all clusters, with what it is for."""
    for stack in (monitoring(), monitoring_full()):
        for name, dashboard in dashboards.of(parse(stack)).items():
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    yield f"{name}: {panel['title']}", target["expr"].replace("$cluster", ".*")


def test_prometheus_understands_every_expression_of_a_dashboard(promtool: Path, tmp_path: Path) -> None:
    expressions = dict.fromkeys(expression for _, expression in _expressions())
    rules = [{"record": f"dashboard:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    file = tmp_path / "dashboards.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}), encoding="utf-8")
    assert f"SUCCESS: {len(rules)} rules found" in _run(promtool, "check", "rules", str(file))


def test_prometheus_would_say_it_of_an_expression_that_is_wrong(promtool: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    rules = [{"record": "wrong", "expr": "sum(kai_anywhere_node_gpus"}]
    file.write_text(json.dumps({"groups": [{"name": "wrong", "rules": rules}]}), encoding="utf-8")
    with pytest.raises(AssertionError, match="unclosed left parenthesis"):
        _run(promtool, "check", "rules", str(file))


def test_prometheus_likes_what_the_exporter_says(promtool: Path) -> None:
    """`promtool check metrics` knows the conventions of names, units and help."""
    reader = Reader(lambda: status_of(nodes=[gpu_node("jetson-1")], queues=[queue("robots")]), 30)
    reader.look()
    said = generate_latest(reader.registry)
    done = subprocess.run([promtool, "check", "metrics"], input=said, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")


_FIRING: Mapping[str, tuple[Sequence[tuple[str, str]], Mapping[str, str], str]] = {
    "KaiAnywhereGpuMemoryOversubscribed": (
        [('kai_anywhere_gpu_group_memory_free_bytes{node="jetson-1",gpu_group="g"}', f"{-1024 * _MIB}x60")],
        {"node": "jetson-1", "gpu_group": "g"},
        "GPU group g on jetson-1 is promised -1GiB: below 0 is more than there is.",
    ),
    "KaiAnywhereGpuPromisedTwice": (
        [
            ('kai_anywhere_node_gpus_in_use{node="jetson-1"}', "2x60"),
            ('kai_anywhere_node_gpus{node="jetson-1"}', "1x60"),
        ],
        {"node": "jetson-1"},
        "KAI counts 2 GPUs in use on jetson-1, more than it has.",
    ),
    "KaiAnywhereReservationPodSilent": (
        [('kai_anywhere_gpu_group_reservation_answered{node="jetson-1",gpu_group="g"}', "0x60")],
        {"node": "jetson-1"},
        "Reservation pods on jetson-1 are missing, have ended, or do not say their GPU.",
    ),
    "KaiAnywherePodPending": (
        [
            (
                'kai_anywhere_pod_pending_since_timestamp_seconds{namespace="a",pod="b",queue="q",reason="scheduler"}',
                "0x60",
            )
        ],
        {"queue": "q", "reason": "scheduler"},
        "A pod of queue q waits for 30m 0s, for: scheduler.",
    ),
    "KaiAnywhereNoGpuAdvertised": (
        [('kai_anywhere_node_gpus_advertised{node="jetson-1"}', "0x60")],
        {"node": "jetson-1"},
        "jetson-1 has GPUs and advertises none: KAI places nothing there.",
    ),
    "KaiAnywhereGpuMemoryUnknown": (
        [('kai_anywhere_node_info{node="jetson-1",sharing="kai"}', "1x60")],
        {"node": "jetson-1", "sharing": "kai"},
        "jetson-1 does not say its GPU's memory: KAI places no pod with gpu-memory there.",
    ),
    "KaiAnywhereGpuNodeNotReady": (
        [('kai_anywhere_node_ready{node="jetson-1"}', "0x60")],
        {"node": "jetson-1"},
        "jetson-1 has GPUs and is not ready.",
    ),
    "KaiAnywhereQueueControllerBehind": (
        [('kai_anywhere_queue_unexplained_gpus{queue="q"}', "-1x60")],
        {"queue": "q"},
        "KAI's queue controller counts 1 GPUs more or fewer for queue q than its pods come to.",
    ),
    "KaiAnywhereMetricsRefused": (
        [('kai_anywhere_unreadable{what="pods"}', "1x60")],
        {"what": "pods"},
        "The API server refuses pods to the exporter: facts about it are missing.",
    ),
    "KaiAnywhereMetricsStale": (
        [("kai_anywhere_exporter_last_read_timestamp_seconds", "0x60")],
        {},
        "The exporter has not read the cluster for 30m 0s.",
    ),
    "KaiAnywhereMetricsAbsent": (
        [("up", "1x60")],
        {},
        "Prometheus has no metrics of kai-anywhere: the exporter does not run, or is not scraped.",
    ),
}
"""By alert: series under which it fires after half an hour, its labels, and what it says."""


def test_every_alert_has_a_case() -> None:
    assert [alert.name for alert in alerts.ALERTS] == list(_FIRING)


def _case(name: str, series: Sequence[tuple[str, str]], expected: list[Json]) -> Json:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": [{"eval_time": "30m", "alertname": name, "exp_alerts": expected}],
    }


def _test(promtool: Path, folder: Path, cases: list[Json]) -> str:
    (folder / "alerts.yaml").write_text(_rules(monitoring()), encoding="utf-8")
    file = folder / "cases.yaml"
    file.write_text(
        json.dumps({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": cases}), encoding="utf-8"
    )
    return _run(promtool, "test", "rules", str(file))


def test_each_alert_fires_with_its_words_and_its_runbook(promtool: Path, tmp_path: Path) -> None:
    by_name = {alert.name: alert for alert in alerts.ALERTS}
    cases = []
    for name, (series, labels, summary) in _FIRING.items():
        alert = by_name[name]
        expected = {
            "exp_labels": {"severity": alert.severity, **labels},
            "exp_annotations": {"summary": summary, "runbook": f"docs/{alert.runbook}"},
        }
        cases.append(_case(name, series, [expected]))
    assert "SUCCESS" in _test(promtool, tmp_path, cases)


def _series_of(families: Iterable[Metric]) -> list[tuple[str, str]]:
    """What the exporter says, as series that stay as they are; promtool can't be told of infinity."""
    return [
        (
            f"{sample.name}{{{','.join(f'{name}={json.dumps(value)}' for name, value in sample.labels.items())}}}",
            f"{1e9 if math.isinf(sample.value) else sample.value:.17g}x60",
        )
        for family in families
        for sample in family.samples
    ]


def _mixed() -> Json:
    """A node whose GPU is cut into MIG slices, each a resource of its own."""
    node = gpu_node("x86-2", advertised=0, memory_mib=81920, labels={"nvidia.com/mig.strategy": "mixed"})
    node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    return node


def test_reservation_pods_that_kai_makes_again_and_again_are_an_alert_though_none_of_them_grows_old(
    promtool: Path, tmp_path: Path
) -> None:
    """KAI deletes one that does not answer after 40 seconds, and tries again under another group."""

    def of(group: str, values: str) -> tuple[str, str]:
        return f'kai_anywhere_gpu_group_reservation_answered{{node="jetson-1",gpu_group="{group}"}}', values

    retried = [of(f"g-{number}", f"{'_ ' * number}0 _ stale") for number in range(0, 31, 2)]
    with pytest.raises(AssertionError, match="alertname: KaiAnywhereReservationPodSilent"):
        _test(promtool, tmp_path, [_case("KaiAnywhereReservationPodSilent", retried, [])])
    slow = [of(f"h-{number}", f"{'_ ' * number}0 1x60") for number in range(0, 31, 2)]
    once = [of("i", f"{'_ ' * 24}0 stale"), of("j", f"{'_ ' * 25}0 stale"), of("k", f"{'_ ' * 26}0 1x60")]
    assert "SUCCESS" in _test(promtool, tmp_path, [_case("KaiAnywhereReservationPodSilent", [*slow, *once], [])])


def test_a_node_that_is_gone_or_tells_of_no_gpu_has_none_that_is_promised_twice(promtool: Path, tmp_path: Path) -> None:
    silent = gpu_node("x86-1", gpus=0)
    del silent["metadata"]["labels"]["nvidia.com/gpu.count"]
    train = pod("train", node="x86-1", limits={"nvidia.com/gpu": "1"})
    status = status_of(nodes=[silent], pods=[train, reservation("g", node="old"), share("a", "g", node="old")])
    case = _case("KaiAnywhereGpuPromisedTwice", _series_of(metrics(status)), [])
    assert "SUCCESS" in _test(promtool, tmp_path, [case])


@pytest.mark.parametrize("memory", [None, 50])
def test_a_node_without_what_kai_needs_is_an_alert_before_anything_counts_its_gpus(
    memory: int | None, promtool: Path, tmp_path: Path
) -> None:
    marked = gpu_node("x86-1", gpus=0, memory_mib=None, labels={"nvidia.com/gpu.present": "true"})
    del marked["metadata"]["labels"]["nvidia.com/gpu.count"]
    status = status_of(nodes=[marked, gpu_node("jetson-1", memory_mib=memory)])
    cases = {"KaiAnywhereNoGpuAdvertised": "x86-1", "KaiAnywhereGpuMemoryUnknown": "jetson-1"}
    for name, node in cases.items():
        with pytest.raises(AssertionError) as said:
            _test(promtool, tmp_path, [_case(name, _series_of(metrics(status)), [])])
        assert [node_name for node_name in ("x86-1", "jetson-1") if f'node="{node_name}"' in str(said.value)] == [node]


def test_an_alert_of_a_pod_of_another_scheduler_names_no_queue(promtool: Path, tmp_path: Path) -> None:
    other = pod("train", node=None, phase="Pending", limits={"nvidia.com/gpu": "8"})
    other["spec"]["schedulerName"] = "default-scheduler"
    series = _series_of(metrics(status_of(nodes=[gpu_node("x86-1")], pods=[other], queues=[queue("robots")])))
    with pytest.raises(AssertionError) as said:
        _test(promtool, tmp_path, [_case("KaiAnywherePodPending", _since_the_beginning(series), [])])
    assert "A pod in no queue of KAI's waits for 30m 0s, for: nobody." in str(said.value)


def _since_the_beginning(series: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pods that wait were created when promtool's clock began."""
    return [(name, "0x60" if "pending_since" in name else values) for name, values in series]


def test_a_pod_that_somebody_holds_back_with_a_gate_is_no_alert(promtool: Path, tmp_path: Path) -> None:
    labels = 'namespace="a",pod="b",queue="q",reason="gate"'
    gated = [(f"kai_anywhere_pod_pending_since_timestamp_seconds{{{labels}}}", "0x60")]
    assert "SUCCESS" in _test(promtool, tmp_path, [_case("KaiAnywherePodPending", gated, [])])


def test_no_alert_fires_where_all_is_well(promtool: Path, tmp_path: Path) -> None:
    down = frontend("cpu-3")
    down["status"]["conditions"][1]["status"] = "Unknown"
    status = status_of(
        nodes=[
            *(gpu_node("jetson-1"), gpu_node("x86-1", gpus=4, memory_mib=46068), gpu_node("cpu-1", gpus=0)),
            *(frontend("cpu-2"), down, _mixed()),
        ],
        pods=[
            *(reservation("g"), share("a", "g"), share("b", "g", mib=20000)),
            *(pod(f"remote-{name}", node=name, limits={"nvidia.com/gpu": "1"}) for name in ("cpu-2", "cpu-3")),
        ],
        queues=[queue("robots", quota=1, used="2.39"), queue("idle")],
    )
    series = [*_series_of(metrics(status)), ("kai_anywhere_exporter_last_read_timestamp_seconds", "0+60x60")]
    assert "SUCCESS" in _test(promtool, tmp_path, [_case(name, series, []) for name in _FIRING])


def test_alerts_fire_on_what_the_exporter_says_of_a_broken_cluster(promtool: Path, tmp_path: Path) -> None:
    """The names and labels of the alerts are the exporter's own."""
    down = gpu_node("jetson-2", advertised=0, memory_mib=None)
    down["status"]["conditions"][1]["status"] = "Unknown"
    status = status_of(
        nodes=[gpu_node("jetson-1"), down],
        pods=[share("a", "g", mib=100000), share("b", "g", mib=100000), share("c", "h"), waiting("w")],
        queues=[queue("robots", quota=1, used="9")],
        unseen=[Unseen("KAI's pod groups", "refused")],
    )
    series = [*_series_of(metrics(status)), ("kai_anywhere_exporter_last_read_timestamp_seconds", "0x60")]
    silent = {"KaiAnywhereMetricsAbsent", "KaiAnywherePodPending"}
    for name in _FIRING:
        if name in silent:
            continue
        with pytest.raises(AssertionError, match=f"alertname: {name}"):
            _test(promtool, tmp_path, [_case(name, series, [])])


def test_nodes_of_the_same_name_in_two_clusters_are_two_to_the_alerts_and_the_dashboards(
    promtool: Path, tmp_path: Path
) -> None:
    """Each site has its jetson-1, and one Prometheus or Thanos may hold them all, told apart by a label of its own."""

    def of(cluster: str, node: Json) -> list[tuple[str, str]]:
        series = _series_of(metrics(status_of(nodes=[node], pods=[reservation("g"), share("a", "g", mib=26200)])))
        return [(name.replace("{", f'{{cluster="{cluster}",').replace(",}", "}"), values) for name, values in series]

    well, broken = gpu_node("jetson-1"), gpu_node("jetson-1", advertised=0, memory_mib=None)
    series = [*of("well", well), *of("broken", broken)]
    for name in ("KaiAnywhereGpuMemoryUnknown", "KaiAnywhereNoGpuAdvertised"):
        with pytest.raises(AssertionError) as said:
            _test(promtool, tmp_path, [_case(name, series, [])])
        assert 'cluster="broken"' in str(said.value)
        assert 'cluster="well"' not in str(said.value)
    [part] = [query for panel, query in _expressions() if panel == "sharing: Allocated part of each node"][:1]
    sample = {"labels": '{cluster="well", node="jetson-1"}', "value": 0.2}
    labels = 'cluster="well",namespace="n",pod="p",queue="q",reason="scheduler"'
    waits = [(f"kai_anywhere_pod_pending_since_timestamp_seconds{{{labels}}}", "0x60")]
    with pytest.raises(AssertionError, match='cluster="well"'):
        _test(promtool, tmp_path, [_case("KaiAnywherePodPending", waits, [])])
    away = of("away", gpu_node("jetson-1", advertised=0))
    twice = [*of("well", well), *of("other", well), *away]
    samples = [sample, {**sample, "labels": '{cluster="other", node="jetson-1"}'}]
    asked = {"promql_expr_test": [{"expr": part, "eval_time": "30m", "exp_samples": samples}]}
    assert "SUCCESS" in _test(promtool, tmp_path, [{**_case("", twice, []), "alert_rule_test": [], **asked}])


def test_a_dashboard_is_of_the_cluster_that_its_reader_chooses_or_of_all_also_without_a_label(
    promtool: Path, tmp_path: Path
) -> None:
    [panel] = [
        panel for panel in dashboards.of(parse(monitoring()))["sharing"]["panels"] if panel["title"] == "Allocated"
    ]
    name, asked = "kai_anywhere_node_gpu_memory_allocated_bytes", panel["targets"][0]["expr"]
    series = [(f'{name}{{cluster="a"}}', "1x60"), (f'{name}{{cluster="b"}}', "2x60"), (name, "4x60")]
    tests = [
        {
            "expr": asked.replace("$cluster", chosen),
            "eval_time": "30m",
            "exp_samples": [{"labels": "{}", "value": number}],
        }
        for chosen, number in ((".*", 7), ("a", 1), ("(a|b)", 3))
    ]
    case = {**_case("", series, []), "alert_rule_test": [], "promql_expr_test": tests}
    assert "SUCCESS" in _test(promtool, tmp_path, [case])


def test_an_exporter_that_never_read_the_cluster_is_not_said_to_have_read_it_long_ago(
    promtool: Path, tmp_path: Path
) -> None:
    """Its time is 0 then; promtool's clock begins at 0 too, so the time is put as far back as it really is."""
    long_ago = [("kai_anywhere_exporter_last_read_timestamp_seconds", f"{-1_790_000_000}x60")]
    with pytest.raises(AssertionError) as said:
        _test(promtool, tmp_path, [_case("KaiAnywhereMetricsStale", long_ago, [])])
    assert 'summary="The exporter has not read the cluster."' in str(said.value)


def test_an_exporter_that_begins_draws_no_age_of_half_a_century(promtool: Path, tmp_path: Path) -> None:
    [age] = [query for panel, query in _expressions() if panel == "sharing: Age of what the exporter read"][:1]
    series = [("kai_anywhere_exporter_last_read_timestamp_seconds", "0x10 600x20")]
    asked = [
        {"expr": age, "eval_time": "5m", "exp_samples": []},
        {"expr": age, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": 600}]},
    ]
    case = {**_case("", series, []), "alert_rule_test": [], "promql_expr_test": asked}
    assert "SUCCESS" in _test(promtool, tmp_path, [case])


def test_nobody_is_said_to_wait_for_nothing_where_that_is_not_known(promtool: Path, tmp_path: Path) -> None:
    [waits] = [query for panel, query in _expressions() if panel == "sharing: Pods that wait"][:1]
    idle = status_of(nodes=[gpu_node("jetson-1")], pods=[reservation("g"), share("a", "g")])
    blind = status_of(nodes=[gpu_node("jetson-1")], unseen=[Unseen("pods", "refused")])
    for status, number in ((idle, [0]), (blind, []), (None, [])):
        series = _series_of(metrics(status)) if status else [("up", "1x60")]
        samples = [{"labels": "{}", "value": value} for value in number]
        asked = [{"expr": waits, "eval_time": "30m", "exp_samples": samples}]
        case = {**_case("", series, []), "alert_rule_test": [], "promql_expr_test": asked}
        assert "SUCCESS" in _test(promtool, tmp_path, [case])


def test_rates_of_a_dashboard_have_samples_at_the_longest_interval(promtool: Path, tmp_path: Path) -> None:
    [longest] = [
        limit.le for limit in MonitoringSettings.model_fields["interval_seconds"].metadata if isinstance(limit, Le)
    ]
    rates = {expression for panel, expression in _expressions() if panel == "kai: Pod groups scheduled"}
    [rate] = rates
    case = {
        "interval": f"{longest}s",
        "input_series": [
            {"series": 'kai_podgroups_scheduled_by_action{action="allocate"}', "values": f"0+{longest}x60"}
        ],
        "promql_expr_test": [
            {"expr": rate, "eval_time": "30m", "exp_samples": [{"labels": '{action="allocate"}', "value": 1}]}
        ],
    }
    assert "SUCCESS" in _test(promtool, tmp_path, [case])


def test_the_first_eviction_of_a_pod_group_is_seen_in_the_dashboard(promtool: Path, tmp_path: Path) -> None:
    """KAI counts by pod group: each has a series of its own, which begins with 1 and often ends with it."""
    [evicted] = [query for panel, query in _expressions() if panel == "kai: Pods evicted in 5 minutes"][:1]
    groups = [("a", "_x19 1x60"), ("b", "1x60"), ("c", "_x29 2x60")]
    series = [
        (f'kai_pod_group_evicted_pods_total{{podgroup="{group}",action="{action}"}}', values)
        for group, values in groups
        for action in ("preempt", "reclaim")
        if (group, action) != ("b", "reclaim")
    ]
    asked = []
    for time, preempted, reclaimed in (("22m", 1, 1), ("26m", 0, 0), ("32m", 2, 2)):
        samples = [
            {"labels": '{action="preempt"}', "value": preempted},
            {"labels": '{action="reclaim"}', "value": reclaimed},
        ]
        asked.append({"expr": evicted, "eval_time": time, "exp_samples": samples})
    case = {**_case("", series, []), "alert_rule_test": [], "promql_expr_test": asked}
    assert "SUCCESS" in _test(promtool, tmp_path, [case])
