"""Bounded waits against a real HTTP server."""

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster import waiting
from cluster.access.client import Cluster
from cluster.errors import ClusterError, ClusterUnreachableError
from cluster.waiting import (
    Condition,
    backend_ready,
    deployment_available,
    gpus_advertised,
    guard_admits,
    operands_rolled_out,
    release_rolled_out,
    runtime_class,
    wait_for,
    webhook_answers,
)
from config.gvirtus import FRONTEND_ALLOWED
from manifests.tolerations import GPU
from testbed.stacks import changed, gvirtus, parse
from tests.support.api_server import (
    QUEUE,
    QUEUE_CONTROLLER,
    RELEASES,
    RUNTIME_CLASS,
    Answer,
    ApiServer,
    daemon_set,
    deployment,
    node,
)


@pytest.fixture(autouse=True)
def _short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "REPORT_SECONDS", 0.05)


def _silent(text: str) -> None:
    raise AssertionError(f"nothing to report: {text}")


_RUNTIME_CLASS = runtime_class("nvidia", operator_namespace="gpu-operator")


def test_what_is_there_already_costs_one_question(api: ApiServer, cluster: Cluster) -> None:
    wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=0, report=_silent)
    assert [request.path for request in api.asked] == [RUNTIME_CLASS]


def test_the_wait_ends_when_the_cluster_is_ready(api: ApiServer, cluster: Cluster) -> None:
    answer = api.answers.pop(RUNTIME_CLASS)
    timer = threading.Timer(0.1, api.answers.__setitem__, (RUNTIME_CLASS, answer))
    timer.start()
    wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=10, report=lambda _: None)
    timer.join()
    assert len(api.asked) > 2


def test_a_wait_that_times_out_says_for_what_how_long_and_why(api: ApiServer, cluster: Cluster) -> None:
    del api.answers[RUNTIME_CLASS]
    start = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=0.1, report=lambda _: None)
    assert 0.1 <= time.monotonic() - start < 3
    text = str(caught.value)
    assert "Waited 0 s for RuntimeClass 'nvidia' without success: it does not exist yet." in text
    assert "Likely causes: the operator does not run" in text
    assert "Look at: kubectl --namespace gpu-operator get pods" in text


def test_a_long_wait_reports_what_is_missing(api: ApiServer, cluster: Cluster) -> None:
    del api.answers[RUNTIME_CLASS]
    reports: list[str] = []
    with pytest.raises(ClusterError):
        wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=0.3, report=reports.append)
    assert 2 <= len(reports) <= 6, "now and then, not at every question"
    assert reports[0].startswith("waiting for RuntimeClass 'nvidia': it does not exist yet (0 s of at most 0 s)")


def test_an_api_server_that_is_away_for_a_moment_only_costs_time(api: ApiServer, cluster: Cluster) -> None:
    answer = api.answers[RUNTIME_CLASS]
    api.fail(RUNTIME_CLASS, 503)
    reports: list[str] = []

    def back(report: str) -> None:
        reports.append(report)
        api.answers[RUNTIME_CLASS] = answer

    wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=10, report=back)
    [report] = reports
    assert "with status 503" in report


def test_an_api_server_that_stays_away_ends_the_wait_and_is_named(api: ApiServer, cluster: Cluster) -> None:
    api.fail(RUNTIME_CLASS, 503)
    with pytest.raises(ClusterError, match=r"without success: The cluster at .* with status 503") as caught:
        wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=0.05, report=lambda _: None)
    assert not isinstance(caught.value, ClusterUnreachableError)


def test_a_refusal_ends_the_wait_at_once(api: ApiServer, cluster: Cluster) -> None:
    api.fail(RUNTIME_CLASS, 403)
    with pytest.raises(ClusterError, match="cluster-admin"):
        wait_for(cluster, _RUNTIME_CLASS, timeout_seconds=60, report=_silent)


class _Clock:
    """Time that passes where somebody sleeps or looks; a look is work, or waits for its answer."""

    def __init__(self, *, works: float = 0.0, waits: float = 0.0, reachable: bool = True) -> None:
        self.now = 0.0
        self.looks: list[float] = []
        self._works, self._waits = works, waits
        self._worked = 0.0
        self._reachable = reachable

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self._worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def look(self, _: Cluster) -> str:
        self.looks.append(self.now)
        self._worked += self._works
        self.now += self._works + self._waits
        if not self._reachable:
            raise ClusterUnreachableError("away")
        return "not yet"


@pytest.mark.parametrize(
    ("clock", "looks"),
    [
        pytest.param(_Clock(), range(60, 70), id="each second where a look costs nothing"),
        pytest.param(_Clock(works=0.15), range(19, 23), id="each three seconds where it costs"),
        pytest.param(_Clock(waits=1.0), range(30, 35), id="a second after an answer that was long on its way"),
        pytest.param(_Clock(works=5.0), range(4, 6), id="each ten seconds at least"),
        pytest.param(_Clock(works=5.0, reachable=False), range(10, 13), id="and soon again where nobody answered"),
    ],
)
def test_looks_take_a_twentieth_of_a_processor_at_most(
    clock: _Clock, looks: range, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 1.0)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(ClusterError, match="Waited 60 s"):
        wait_for(cluster, Condition("it", clock.look, "no cause"), timeout_seconds=60, report=lambda _: None)
    assert len(clock.looks) in looks
    assert clock.looks[-1] == pytest.approx(60, abs=5), "the last look is at the end"


def _missing(condition: Condition, cluster: Cluster) -> str | None:
    return condition.missing(cluster)


def test_gpus_are_missing_until_every_named_node_has_them(api: ApiServer, cluster: Cluster) -> None:
    nodes = [node("named", gpus=0), node("has-one"), node("other", gpus=0)]
    api.serve("/api/v1/nodes", {"items": nodes})
    condition = gpus_advertised(frozenset({"named", "has-one"}), operator_namespace="gpu-operator")
    assert _missing(condition, cluster) == "no nvidia.com/gpu on named"


def test_a_taint_that_keeps_the_device_plugin_off_is_named_with_its_node(api: ApiServer, cluster: Cluster) -> None:
    nodes = [node("named", gpus=0), node("other", gpus=0, labels={"nvidia.com/gpu.present": "true"})]
    for unready in nodes:
        unready["spec"] = {
            "taints": [
                {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
                {"key": "dedicated", "value": "robots", "effect": "NoSchedule"},
            ]
        }
    api.serve("/api/v1/nodes", {"items": nodes})
    named = gpus_advertised(frozenset({"named"}), operator_namespace="gpu-operator")
    assert _missing(named, cluster) == "no nvidia.com/gpu on named (tainted dedicated=robots:NoSchedule)"
    condition = gpus_advertised(frozenset(), operator_namespace="gpu-operator")
    assert _missing(condition, cluster) == "no nvidia.com/gpu on any of other (tainted dedicated=robots:NoSchedule)"
    tolerations = [GPU, {"key": "dedicated", "operator": "Exists"}]
    condition = gpus_advertised(frozenset(), operator_namespace="gpu-operator", tolerations=tolerations)
    assert _missing(condition, cluster) == "no nvidia.com/gpu on any of other", "the stack's pods tolerate it"


def test_a_node_that_is_not_ready_is_named_as_that_where_its_gpus_are_waited_for(
    api: ApiServer, cluster: Cluster
) -> None:
    """Its pods say nothing, since its kubelet does not: the wait named drivers, profiles and images."""
    off, on = node("named", gpus=0), node("other", gpus=0)
    off["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}]
    off["spec"] = {"taints": [{"key": "dedicated", "value": "robots", "effect": "NoSchedule"}]}
    on["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    api.serve("/api/v1/nodes", {"items": [off, on]})
    condition = gpus_advertised(frozenset({"named", "other"}), operator_namespace="gpu-operator")
    missing = "no nvidia.com/gpu on named (not Ready; tainted dedicated=robots:NoSchedule), other"
    assert _missing(condition, cluster) == missing


@pytest.mark.parametrize(
    ("gpus", "missing"), [((0, 0), "no nvidia.com/gpu on any of a, b"), ((0, 8), None), ((8, 8), None)]
)
def test_of_nodes_where_the_operator_found_a_gpu_one_is_enough(
    api: ApiServer, cluster: Cluster, gpus: tuple[int, int], missing: str | None
) -> None:
    labels = {"nvidia.com/gpu.present": "true"}
    nodes = [node(name, gpus=count, labels=labels) for name, count in zip("ab", gpus, strict=True)]
    api.serve("/api/v1/nodes", {"items": [*nodes, node("plain", gpus=0)]})
    assert _missing(gpus_advertised(frozenset(), operator_namespace="gpu-operator"), cluster) == missing


def test_a_frontend_that_somebody_marked_as_a_gpu_node_is_not_waited_for(api: ApiServer, cluster: Cluster) -> None:
    marked = node("frontend", gpus=0, labels={"nvidia.com/gpu.present": "true", FRONTEND_ALLOWED: "true"})
    api.serve("/api/v1/nodes", {"items": [marked]})
    assert _missing(gpus_advertised(frozenset(), operator_namespace="gpu-operator"), cluster) is None


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_slices_are_gpus_that_are_advertised(resource: str, api: ApiServer, cluster: Cluster) -> None:
    mixed = node("mixed", gpus=0, labels={"nvidia.com/gpu.present": "true"})
    mixed["status"]["allocatable"][resource] = "7"
    api.serve("/api/v1/nodes", {"items": [mixed]})
    assert _missing(gpus_advertised(frozenset(), operator_namespace="gpu-operator"), cluster) is None


def test_a_named_node_may_advertise_slices_alone(api: ApiServer, cluster: Cluster) -> None:
    split = node("split", gpus=0)
    split["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    api.serve("/api/v1/nodes", {"items": [split, node("broken", gpus=0)]})
    assert _missing(gpus_advertised(frozenset({"split"}), operator_namespace="gpu-operator"), cluster) is None
    both = gpus_advertised(frozenset({"split", "broken"}), operator_namespace="gpu-operator")
    assert _missing(both, cluster) == "no nvidia.com/gpu on broken"


def test_gpus_are_advertised_once_every_such_node_has_them(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/nodes", {"items": [node("named"), node("plain", gpus=0)]})
    condition = gpus_advertised(frozenset({"named"}), operator_namespace="gpus")
    assert _missing(condition, cluster) is None
    assert "kubectl --namespace gpus get pods" in condition.causes


_REVISIONS = "/api/v1/namespaces/gpu-operator/secrets"
_REVISION = {"name": "sh.helm.release.v1.gpu-operator.v1", "labels": {"version": "1", "status": "deployed"}}


def _release(api: ApiServer, *, deployments: list[Any] | None = None, daemon_sets: list[Any] | None = None) -> None:
    path = RELEASES["gpu-operator"]
    if deployments is not None:
        api.serve(f"{path}/deployments", {"items": deployments})
    if daemon_sets is not None:
        api.serve(f"{path}/daemonsets", {"items": daemon_sets})


_OF = functools.partial(deployment, "gpu-operator", release="gpu-operator")
_WORKER = functools.partial(daemon_set, "nfd-worker", release="gpu-operator")


@pytest.mark.parametrize(
    ("manifest", "missing"),
    [
        pytest.param(_OF(), None, id="rolled out"),
        pytest.param(_OF(available=0), None, id="rolled out, and failing since"),
        pytest.param(
            _OF(available=0, rolled_out=False),
            "Deployment 'gpu-operator': 0 of 1 replicas are available",
            id="never available",
        ),
        pytest.param(
            _OF(updated=0, rolled_out=False),
            "Deployment 'gpu-operator': 0 of 1 replicas are up to date",
            id="the template before it is available",
        ),
        pytest.param(
            _OF(updated=0),
            "Deployment 'gpu-operator': 0 of 1 replicas are up to date",
            id="back to a template of before",
        ),
        pytest.param(
            _OF(rolled_out=False), "Deployment 'gpu-operator': its roll-out has not ended yet", id="not noted yet"
        ),
        pytest.param(
            _OF(generation=2),
            "Deployment 'gpu-operator': its controller has not seen its last change yet",
            id="just changed",
        ),
        pytest.param(deployment("else", release="other", rolled_out=False), None, id="of another release"),
        pytest.param(deployment("operand", rolled_out=False), None, id="of no release"),
    ],
)
def test_a_releases_deployments_must_have_rolled_out_once(
    api: ApiServer, cluster: Cluster, manifest: dict[str, Any], missing: str | None
) -> None:
    _release(api, deployments=[manifest])
    api.serve(_REVISIONS, {"items": [{"metadata": _REVISION}]})
    condition = release_rolled_out("gpu-operator", "gpu-operator")
    assert _missing(condition, cluster) == missing
    assert condition.what == "the pods of Helm release 'gpu-operator' in namespace 'gpu-operator'"
    assert "kubectl --namespace gpu-operator get pods" in condition.causes


@pytest.mark.parametrize(
    ("desired", "ready", "away", "waits"),
    [
        # Of its nodes; one more, which it is not for, is away in any case.
        pytest.param(1, 0, 0, True, id="the only node waits"),
        pytest.param(1, 0, 1, False, id="the only node is away"),
        pytest.param(3, 1, 0, True, id="two of three nodes wait"),
        pytest.param(3, 2, 0, False, id="one of three nodes is broken"),
        pytest.param(3, 1, 2, False, id="two of three nodes are away"),
        pytest.param(50, 44, 0, True, id="more than a tenth waits"),
        pytest.param(50, 45, 0, False, id="a tenth is broken"),
        pytest.param(50, 44, 6, False, id="those that wait are away"),
        pytest.param(0, 0, 0, False, id="no node"),
    ],
)
def test_a_releases_daemon_set_waits_for_nodes_that_are_ready_but_for_a_few(  # noqa: PLR0913 - a case's parts
    api: ApiServer, cluster: Cluster, desired: int, ready: int, away: int, *, waits: bool
) -> None:
    _release(
        api, daemon_sets=[_WORKER(desired=desired, ready=ready), daemon_set("else", release="x", desired=9, ready=0)]
    )
    nodes = [node(f"node-{number}") for number in range(desired)]
    for number, node_labels in enumerate(nodes):
        node_labels["status"]["conditions"] = [{"type": "Ready", "status": "Unknown" if number < away else "True"}]
    off = node("a-worker")
    off["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    api.serve("/api/v1/nodes", {"items": [*nodes, off]})
    pods = [_pod("nfd-worker", kind="DaemonSet") for _ in nodes]
    for pod, node_labels in zip(pods, nodes, strict=True):
        pod["spec"] = {"nodeName": node_labels["metadata"]["name"]}
    api.serve(_PODS, {"items": [*pods, _pod("another", kind="DaemonSet") | {"spec": {"nodeName": "a-worker"}}]})
    missing = f"DaemonSet 'nfd-worker': it is ready on {ready} of {desired} nodes" if waits else None
    assert _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster) == missing


def test_a_release_that_somebody_uninstalled_is_not_waited_for(api: ApiServer, cluster: Cluster) -> None:
    condition = release_rolled_out("gpu-operator", "gpu-operator")
    _release(api, deployments=[deployment("else", release="other")], daemon_sets=[])
    api.serve(_REVISIONS, {"items": []})
    with pytest.raises(ClusterError, match=r"(?s)Helm release 'gpu-operator' is not in .*: pulumi up --refresh$"):
        wait_for(cluster, condition, timeout_seconds=60, report=_silent)
    # Helm can note revisions elsewhere than in Secrets.
    _release(api, deployments=[_OF()])
    wait_for(cluster, condition, timeout_seconds=60, report=_silent)


def test_a_daemon_set_whose_controller_has_not_seen_it_is_waited_for(api: ApiServer, cluster: Cluster) -> None:
    _release(api, daemon_sets=[_WORKER(desired=0, ready=0, generation=2)])
    missing = _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster)
    assert missing == "DaemonSet 'nfd-worker': its controller has not seen its last change yet"


_PODS = "/api/v1/namespaces/gpu-operator/pods"
_BACKEND = {"image": "registry.example.com/gvirtus:1", "node": "x86-1"}
_UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]


def _pod(
    owner: str,
    waiting: dict[str, str] | None = None,
    kind: str = "ReplicaSet",
    before: dict[str, Any] | None = None,
    **status: Any,  # noqa: ANN401 - a status
) -> dict[str, Any]:
    containers = [{"name": "main", "state": {"waiting": waiting}, "lastState": before or {}}] if waiting else []
    return {
        "metadata": {
            "name": f"{owner}-x",
            "namespace": "gpu-operator",
            "ownerReferences": [{"kind": kind, "name": owner}],
        },
        "status": status | {"containerStatuses": containers},
    }


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        pytest.param(
            [_pod("gpu-operator-7", {"reason": "ImagePullBackOff", "message": "Back-off\npulling  image"})],
            "; pod gpu-operator-7-x: ImagePullBackOff: Back-off pulling image",
            id="an image that can't be pulled",
        ),
        pytest.param(
            [_pod("gpu-operator-7", conditions=_UNSCHEDULABLE)],
            "; pod gpu-operator-7-x: 0/1 nodes are available",
            id="no node",
        ),
        pytest.param(
            [
                _pod(
                    "gpu-operator-7",
                    {"reason": "CrashLoopBackOff", "message": "back-off 40s"},
                    before={"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                )
            ],
            "; pod gpu-operator-7-x: CrashLoopBackOff: back-off 40s (its last end: OOMKilled, status 137)",
            id="a limit of memory, as a LimitRange gives it",
        ),
        pytest.param([_pod("gpu-operator-7", {"reason": "ContainerCreating"})], "", id="it starts"),
        pytest.param([_pod("gpu-operator-7")], "", id="nothing is said"),
        pytest.param([_pod("gpu-operator-worker-7", {"reason": "CrashLoopBackOff"})], "", id="another Deployment's"),
        pytest.param(
            [_pod("gpu-operator-worker", {"reason": "CrashLoopBackOff"}, "DaemonSet")], "", id="a DaemonSet's"
        ),
        pytest.param([_pod("", {"reason": "CrashLoopBackOff"})], "", id="nobody's"),
        pytest.param(
            [_pod("gpu-operator-7", {"reason": "E", "message": "x" * 300})],
            f"; pod gpu-operator-7-x: E: {'x' * 197}",
            id="long words",
        ),
    ],
)
def test_a_roll_out_that_is_waited_for_tells_why_its_pod_does_not_run(
    api: ApiServer, cluster: Cluster, pods: list[Any], words: str
) -> None:
    _release(api, deployments=[_OF(available=0, rolled_out=False)])
    api.serve(_PODS, {"items": pods})
    missing = _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster)
    assert missing == f"Deployment 'gpu-operator': 0 of 1 replicas are available{words}"


def test_a_daemon_set_that_is_waited_for_tells_why_its_pod_does_not_run(api: ApiServer, cluster: Cluster) -> None:
    _release(api, deployments=[], daemon_sets=[_WORKER(desired=1, ready=0)])
    ready = [{"type": "Ready", "status": "True"}]
    api.serve("/api/v1/nodes", {"items": [{"metadata": {"name": "node-1"}, "status": {"conditions": ready}}]})
    api.serve(_PODS, {"items": [_pod("nfd-worker", {"reason": "ErrImagePull"}, "DaemonSet")]})
    missing = _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster)
    assert missing == "DaemonSet 'nfd-worker': it is ready on 0 of 1 nodes; pod nfd-worker-x: ErrImagePull"


_NAMED = gpus_advertised(frozenset({"named", "other"}), operator_namespace="gpu-operator")
_TOOLKIT = _pod("nvidia-container-toolkit-daemonset", {"reason": "ErrImagePull"}, "DaemonSet")
_PLUGIN = _pod("nvidia-device-plugin-daemonset", {"reason": "PodInitializing"}, "DaemonSet")
_NO_QUOTA = "Error creating: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]"


@pytest.mark.parametrize(
    ("pods", "events", "words"),
    [
        pytest.param(
            [_PLUGIN, _TOOLKIT], [], "; pod nvidia-container-toolkit-daemonset-x: ErrImagePull", id="of another operand"
        ),
        pytest.param([], [_NO_QUOTA], f"; its pods are refused: {_NO_QUOTA} (once that is mended", id="refused"),
        pytest.param([_PLUGIN], [_NO_QUOTA], "", id="refused on another node"),
        pytest.param([_PLUGIN], [], "", id="it starts"),
        pytest.param([], [], "", id="nothing is said"),
    ],
)
def test_gpus_that_are_waited_for_tell_why_a_pod_of_the_first_node_without_one_does_not_run(
    api: ApiServer, cluster: Cluster, pods: list[Any], events: list[str], words: str
) -> None:
    api.serve("/api/v1/nodes", {"items": [node("other", gpus=0), node("named", gpus=0)]})
    plugin = daemon_set("nvidia-device-plugin-daemonset", release="gpu-operator", desired=2, ready=0)
    _release(api, deployments=[], daemon_sets=[plugin])
    api.serve(_PODS, {"items": pods})
    api.serve(
        "/api/v1/namespaces/gpu-operator/events",
        {"items": [{"type": "Warning", "message": message} for message in events]},
    )
    missing = _missing(_NAMED, cluster)
    assert missing is not None
    assert missing.startswith(f"no nvidia.com/gpu on named, other{words}")
    assert words or missing == "no nvidia.com/gpu on named, other"
    [asked] = [request for request in api.asked if request.path == _PODS]
    assert asked.query["fieldSelector"] == ["spec.nodeName=named"]


def test_who_may_not_list_pods_still_hears_which_nodes_lack_gpus(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/api/v1/nodes", {"items": [node("named", gpus=0)]})
    api.fail(_PODS, 403)
    assert _missing(_NAMED, cluster) == "no nvidia.com/gpu on named"


_QUOTA = 'pods "x-7" is forbidden: failed quota: team: must specify limits.memory for: main'
_AGAIN = "(once that is mended Kubernetes tries again, within 17 minutes; at once: kubectl --namespace gpu-operator "
_REFUSED = f"; its pods are refused: {_QUOTA} {_AGAIN}rollout restart deployment gpu-operator)"


@pytest.mark.parametrize(
    ("pods", "status", "words"),
    [
        pytest.param([], "True", _REFUSED, id="no pod"),
        pytest.param([_pod("gpu-operator-7")], "True", _REFUSED, id="a pod that says nothing"),
        pytest.param(
            [_pod("gpu-operator-7", {"reason": "ErrImagePull"})],
            "True",
            "; pod gpu-operator-7-x: ErrImagePull",
            id="a pod that says why it does not run",
        ),
        pytest.param([], "False", "", id="not any more"),
    ],
)
def test_a_deployment_whose_pods_a_quota_refuses_tells_so_in_its_words(
    api: ApiServer, cluster: Cluster, pods: list[Any], status: str, words: str
) -> None:
    refused = _OF(available=0, rolled_out=False)
    refused["status"]["conditions"] += [{"type": "ReplicaFailure", "status": status, "message": _QUOTA}]
    _release(api, deployments=[refused])
    api.serve(_PODS, {"items": pods})
    missing = _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster)
    assert missing == f"Deployment 'gpu-operator': 0 of 1 replicas are available{words}"


def test_a_daemon_set_whose_pods_are_refused_tells_so_in_the_newest_events_words(
    api: ApiServer, cluster: Cluster
) -> None:
    _release(api, deployments=[], daemon_sets=[_WORKER(desired=1, ready=0)])
    ready = node("node-1") | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    api.serve("/api/v1/nodes", {"items": [ready]})
    events = "/api/v1/namespaces/gpu-operator/events"
    long = f"Error creating: {_QUOTA} {'x' * 300} Ask the platform's team."
    api.serve(events, {"items": [{"message": "older"}, {"message": long}]})
    api.serve(_PODS, {"items": []})
    condition = release_rolled_out("gpu-operator", "gpu-operator")
    missing = _missing(condition, cluster)
    refused = f"its pods are refused: {long} {_AGAIN}rollout restart daemonset nfd-worker)"
    assert missing == f"DaemonSet 'nfd-worker': it is ready on 0 of 1 nodes; {refused}"
    [asked] = [request for request in api.asked if request.path == events]
    assert asked.query["fieldSelector"] == ["involvedObject.name=nfd-worker,type=Warning"]
    # An event stays for an hour: what it says is over once the pods are there.
    api.serve(_PODS, {"items": [_pod("nfd-worker", kind="DaemonSet")]})
    assert _missing(condition, cluster) == "DaemonSet 'nfd-worker': it is ready on 0 of 1 nodes"


def test_who_may_not_read_pods_waits_without_their_words(api: ApiServer, cluster: Cluster) -> None:
    _release(api, deployments=[_OF(available=0, rolled_out=False)])
    api.answers[_PODS] = Answer(403, b'{"kind": "Status", "code": 403, "message": "pods is forbidden"}')
    missing = _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster)
    assert missing == "Deployment 'gpu-operator': 0 of 1 replicas are available"


def test_who_may_not_read_pods_takes_every_node_that_is_away_for_one_of_the_daemon_sets(
    api: ApiServer, cluster: Cluster
) -> None:
    _release(api, deployments=[], daemon_sets=[_WORKER(desired=1, ready=0)])
    api.serve("/api/v1/nodes", {"items": [{"metadata": {"name": "node-1"}}]})
    api.answers[_PODS] = Answer(403, b'{"kind": "Status", "code": 403, "message": "pods is forbidden"}')
    assert _missing(release_rolled_out("gpu-operator", "gpu-operator"), cluster) is None


def test_of_an_operators_deployments_those_that_are_there_must_have_rolled_out_once(
    api: ApiServer, cluster: Cluster
) -> None:
    condition = operands_rolled_out("gpu-operator", ("binder", "admission", "of-another-version"))
    waits = deployment("admission", available=0, rolled_out=False)
    _release(api, deployments=[deployment("somebodys", available=0, rolled_out=False), deployment("binder"), waits])
    assert _missing(condition, cluster) == "Deployment 'admission': 0 of 1 replicas are available"
    _release(api, deployments=[deployment("binder"), deployment("admission", available=0)])
    assert _missing(condition, cluster) is None
    assert condition.what == "binder, admission, of-another-version in namespace 'gpu-operator'"


_NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("backends", "words", "missing"),
    [
        pytest.param({"gpu-a": True}, "", None, id="it runs"),
        pytest.param({}, "", "it does not exist yet", id="not there"),
        pytest.param({"gpu-a": False}, _NO_GPU, _NO_GPU, id="nobody leaves"),
        pytest.param({"gpu-a": False, "gpu-b": True}, _NO_GPU, _NO_GPU, id="another one of the stack has the GPU"),
        pytest.param({"gpu-a": False, "old": True}, _NO_GPU, None, id="one that leaves has the GPU"),
        pytest.param({"gpu-a": False, "old": True}, f"{'other reasons, ' * 20}{_NO_GPU}", None, id="in many words"),
        pytest.param({"gpu-a": False, "old": True}, "untolerated taint", "untolerated taint", id="another reason"),
        pytest.param({"gpu-a": False, "": True}, _NO_GPU, _NO_GPU, id="somebody's Deployment"),
    ],
)
def test_a_backend_is_waited_for_unless_one_that_leaves_the_stack_has_its_gpu(
    api: ApiServer, cluster: Cluster, backends: dict[str, bool], words: str, missing: str | None
) -> None:
    remote = parse(changed(gvirtus(), "gvirtus.backends", dict.fromkeys(("gpu-a", "gpu-b"), _BACKEND))).gvirtus
    assert remote is not None
    deployments = []
    for name, runs in backends.items():
        labels = {"gvirtus.io/backend": name} if name else {}
        manifest = deployment(name or "else", available=int(runs), rolled_out=runs, labels=labels)
        manifest["metadata"]["namespace"] = remote.namespace
        deployments.append(manifest)
    place = f"namespaces/{remote.namespace}"
    api.serve(f"/apis/apps/v1/{place}/deployments", {"items": deployments})
    condition = [{"type": "PodScheduled", "status": "False", "message": words}]
    api.serve(f"/api/v1/{place}/pods", {"items": [_pod("gpu-a-7", conditions=condition)]})
    waits = backend_ready(remote, "gpu-a")
    text = _missing(waits, cluster)
    assert text == missing or (missing and text and text.endswith(f"available; pod gpu-a-7-x: {missing}"))
    assert waits.what == "backend 'gpu-a' of remote GPUs in namespace 'gvirtus-system'"


def _serve(api: ApiServer, **of: Any) -> None:  # noqa: ANN401 - what a Deployment has
    api.serve(QUEUE_CONTROLLER, deployment("queue-controller", **of))


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda api: api.answers.pop(QUEUE_CONTROLLER), "it does not exist yet"),
        (lambda api: _serve(api, replicas=2, available=0), "0 of 2 replicas are available"),
        (lambda api: _serve(api, replicas=0, available=0), "0 of 0 replicas are available"),
        (lambda api: _serve(api, replicas=2, available=1), "1 of 2 replicas are available"),
        (lambda api: _serve(api, replicas=2, available=2, updated=1), "1 of 2 replicas are up to date"),
        (lambda api: _serve(api, generation=2), "its controller has not seen its last change yet"),
        (lambda api: _serve(api, replicas=2, available=2, updated=2, rolled_out=False), None),
    ],
)
def test_a_deployment_is_available_with_all_its_replicas(
    api: ApiServer, cluster: Cluster, change: Callable[[ApiServer], object], missing: str | None
) -> None:
    change(api)
    condition = deployment_available("kai-scheduler", "queue-controller", causes="Because.")
    assert _missing(condition, cluster) == missing
    assert condition.what == "Deployment 'queue-controller' in namespace 'kai-scheduler'"
    assert condition.causes.startswith("Because.\nLook at: kubectl --namespace kai-scheduler get ")


_QUEUE = {
    "apiVersion": "scheduling.run.ai/v2",
    "kind": "Queue",
    "metadata": {"name": "default-parent-queue"},
    "spec": {"displayName": "default-parent-queue"},
}
_SILENT = (
    'Internal error occurred: failed calling webhook "queue-validation.kai.scheduler": failed to call webhook: Post '
    '"https://queue-controller.kai-scheduler.svc:443/validate?timeout=10s": no endpoints available'
)


def test_a_webhook_is_asked_by_a_dry_run_that_stores_nothing(api: ApiServer, cluster: Cluster) -> None:
    assert _missing(webhook_answers(_QUEUE, causes="Because."), cluster) is None
    [asked] = api.asked
    assert (asked.method, asked.path, asked.query["dryRun"]) == ("PATCH", QUEUE, ["All"])


def test_a_silent_webhook_is_waited_for_and_its_last_words_are_told(api: ApiServer, cluster: Cluster) -> None:
    api.object_to(QUEUE, 500, _SILENT)
    condition = webhook_answers(_QUEUE, causes="Because.")
    with pytest.raises(ClusterError) as caught:
        wait_for(cluster, condition, timeout_seconds=0.1, report=lambda _: None)
    text = str(caught.value)
    assert "for the admission webhook of Queue 'default-parent-queue' to answer without success: last heard: " in text
    assert f"{_SILENT}.\nBecause.\nLook at: kubectl get validatingwebhookconfigurations" in text
    timer = threading.Timer(0.1, api.applies.pop, (QUEUE,))
    timer.start()
    wait_for(cluster, condition, timeout_seconds=10, report=lambda _: None)
    timer.join()


def test_a_kind_without_its_definition_is_told_as_that(api: ApiServer, cluster: Cluster) -> None:
    api.applies[QUEUE] = Answer(404, b"404 page not found")
    missing = _missing(webhook_answers(_QUEUE, causes="Because."), cluster)
    assert missing is not None
    assert "does not know the kind Queue: its CustomResourceDefinition is missing" in missing
    assert "404" not in missing


@pytest.mark.parametrize(
    ("status", "message", "settled"),
    [
        (403, 'admission webhook "queue-validation.kai.scheduler" denied the request: resources must be said', True),
        (403, "ValidatingAdmissionPolicy 'need-owner' with binding 'need-owner' denied request: who is it?", True),
        (422, 'Queue.scheduling.run.ai "default-parent-queue" is invalid: spec.resources', True),
        (403, 'queues "default-parent-queue" is forbidden: not yet ready to handle request', False),
        (429, "too many requests", False),
        (504, "Timeout: request did not complete within the allotted time", False),
    ],
)
def test_a_refusal_is_an_answer_and_what_may_pass_by_is_none(
    api: ApiServer, cluster: Cluster, status: int, message: str, *, settled: bool
) -> None:
    api.object_to(QUEUE, status, message)
    expected = None if settled else f"last heard: {message}"
    assert _missing(webhook_answers(_QUEUE, causes="Because."), cluster) == expected


def test_an_answer_in_plain_text_is_told_by_its_status(api: ApiServer, cluster: Cluster) -> None:
    api.applies[QUEUE] = Answer(502, b"bad gateway")
    missing = _missing(webhook_answers(_QUEUE, causes="Because."), cluster)
    assert missing == "last heard: the API server answered with status 502"


@pytest.mark.parametrize("guard", ["kai-anywhere-pod-guard", "somebodys"])
def test_only_the_pod_guards_own_refusal_is_waited_for(api: ApiServer, cluster: Cluster, guard: str) -> None:
    refusal = f"ValidatingAdmissionPolicy '{guard}' with binding '{guard}' denied request: it mounts a folder"
    condition = guard_admits(_QUEUE)
    assert _missing(condition, cluster) is None
    api.object_to(QUEUE, 403, refusal)
    assert _missing(condition, cluster) == (f"last heard: {refusal}" if guard == "kai-anywhere-pod-guard" else None)
    assert all((asked.method, asked.query["dryRun"]) == ("PATCH", ["All"]) for asked in api.asked), "nothing is stored"


def test_of_many_nodes_without_a_gpu_the_first_are_named_and_the_others_counted(
    api: ApiServer, cluster: Cluster
) -> None:
    names = [f"jetson-{number:04}" for number in range(1000)]
    api.serve("/api/v1/nodes", {"items": [node(name, gpus=0) for name in names]})
    condition = gpus_advertised(frozenset(names), operator_namespace="gpu-operator")
    missing = condition.missing(cluster)
    assert missing is not None
    assert missing.startswith("no nvidia.com/gpu on jetson-0000, jetson-0001, ")
    assert missing.endswith("jetson-0009 and 990 more")
