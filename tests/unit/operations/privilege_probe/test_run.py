"""A probe from its first request to its last, on a board whose pods end as a script says."""

import json
import os
import signal
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from cluster.errors import ClusterError, LoginError
from config.stack import StackSettings
from manifests.versions import KAI_SCHEDULER
from operations import scratch
from operations.errors import OperationError
from operations.privilege_probe import ladder, run
from operations.privilege_probe.ladder import LABEL, LADDER, NAMESPACE
from operations.privilege_probe.report import FOUND, NOT_HELD, NOT_RUN, Result
from operations.privilege_probe.run import Probe, check_stack, device_groups, kai_image
from testbed.stacks import Json, changed, parse, rungs, x86
from testbed.stacks import jetson as stack_of_one
from tests.support.privilege_probe.outcomes import HELD, failed, not_created, refused
from tests.unit.operations.privilege_probe.board import Board, jetson

IMAGE = "registry.example.com/kai/resourcereservation:v0.18.6"
PLACE = f"/api/v1/namespaces/{NAMESPACE}"
RIGHTS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
LIBRARY = failed("unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
CLOSED = failed("unable to get device count: Insufficient Permissions")
GUARD = "ValidatingAdmissionPolicy 'kai-anywhere-pod-guard' denied request: hostPath volumes"


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(scratch, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(run, "SETTLED_SECONDS", 0.0)


def _probe(board: Board, stack: Json | None = None, lines: list[str] | None = None) -> Result:
    cluster = board.connect()
    lines = [] if lines is None else lines
    try:
        settings = parse(stack or stack_of_one())
        return Probe(cluster, settings, "jetson-1", IMAGE, (44, 104), lines.append).run()
    finally:
        cluster.close()


def _tried(result: Result) -> list[str]:
    return [attempt.rung.name for attempt in result.attempts]


def _written(stack: Json, result: Result) -> StackSettings:
    """The stack after a reader wrote the answer into it."""
    for section, keys in result.settings_to_write.items():
        for key, value in keys.items():
            stack = changed(stack, f"{section}.{key}", value)
    return parse(stack)


ALL_FAIL: Mapping[str, Json] = {rung.name: LIBRARY for rung in LADDER}


@pytest.mark.parametrize(
    ("script", "tried", "privilege"),
    [
        ({"plain": HELD, "variables": HELD}, ["plain", "variables"], "none"),
        ({"runtime-class": HELD, "variables": HELD}, ["plain", "runtime-class", "variables"], "none"),
        ({"variables": HELD}, ["plain", "runtime-class", "variables"], "none"),
        ({"runtime-class": CLOSED, "groups": HELD}, ["plain", "runtime-class", "groups"], "none"),
        ({"libraries": HELD}, ["plain", "runtime-class", "variables", "libraries"], "devices"),
        (
            {"libraries": CLOSED, "libraries-groups": HELD},
            ["plain", "runtime-class", "variables", "libraries", "libraries-groups"],
            "devices",
        ),
        (
            {"runtime-class": CLOSED, "groups": CLOSED, "root": HELD, "privileged": HELD},
            ["plain", "runtime-class", "groups", "root", "privileged"],
            "privileged",
        ),
        ({"privileged": HELD}, ["plain", "runtime-class", "variables", "libraries", "privileged"], "privileged"),
    ],
)
def test_the_lowest_rung_that_holds_is_what_the_settings_get(script: Json, tried: list[str], privilege: str) -> None:
    board = Board({**ALL_FAIL, **script})
    result = _probe(board)
    assert _tried(result) == tried
    assert result.status == FOUND
    assert _written(stack_of_one(), result).privileges == {"jetson-1": privilege}
    assert result.needed == (privilege != "none")
    assert board.objects == {}


def test_one_pod_at_a_time_in_a_namespace_of_its_level() -> None:
    board = Board({**ALL_FAIL, "privileged": HELD})
    at_once: list[int] = []
    board.before = lambda _: at_once.append(sum("/pods/" in path for path in board.objects))
    _probe(board)
    assert max(at_once) == 1
    assert board.levels == ["baseline", "baseline", "baseline", "privileged", "privileged"]


def test_everything_that_is_made_carries_the_label_and_is_gone_at_the_end() -> None:
    board = Board({**ALL_FAIL, "libraries": HELD})
    _probe(board)
    assert {manifest["kind"] for manifest in board.made} == {
        "Namespace",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Pod",
    }
    assert all(manifest["metadata"]["labels"][LABEL] == "true" for manifest in board.made)
    assert board.deleted[-1] == PLACE
    assert board.objects == {}


def test_progress_is_told_by_rung() -> None:
    lines: list[str] = []
    _probe(Board({**ALL_FAIL, "variables": HELD}), lines=lines)
    assert [line.partition(":")[0] for line in lines] == [
        name for name in ("plain", "runtime-class", "variables") for _ in range(2)
    ]
    assert lines[-1] == "variables: held"
    assert lines[1] == "plain: library not found"


@pytest.mark.parametrize(
    ("becomes", "symptom", "status"),
    [
        (not_created("nvidia-container-runtime: unsupported device id: GPU-5d41"), "unknown_id", NOT_HELD),
        (failed("found 2 devices, 1 was expected"), "several", NOT_HELD),
        ({"phase": "Pending", "events": ['no runtime for "nvidia" is configured']}, "no_runtime", NOT_HELD),
        ({"phase": "Pending", "events": ["hostPath type check failed: /x is not"]}, "no_folder", NOT_HELD),
        (
            {"phase": "Failed", "status": {"reason": "OutOfnvidia.com/gpu", "message": "not enough resource"}},
            "no_gpu",
            NOT_RUN,
        ),
        ({"phase": "Pending", "state": {"waiting": {"reason": "ImagePullBackOff"}}}, "no_image", NOT_RUN),
        (failed("could not find pod. dial tcp: i/o timeout"), "no_api", NOT_RUN),
    ],
)
def test_what_no_rung_helps_against_ends_the_climb(becomes: Json, symptom: str, status: int) -> None:
    board = Board({**ALL_FAIL, "runtime-class": becomes})
    result = _probe(board)
    assert _tried(result) == ["plain", "runtime-class"]
    answer = json.loads(result.json())
    assert answer["attempts"][-1]["symptom"] == symptom
    assert answer["attempts"][-1]["evidence"]
    assert (result.status, answer["settings"], answer["workaround_needed"]) == (status, {}, None)
    assert board.objects == {}


def test_a_pod_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "ANSWER_SECONDS", 0)
    silent = {"phase": "Running", "state": {"running": {}}, "log": "Looking for GPU device id for pod"}
    result = _probe(Board(dict.fromkeys(ALL_FAIL, silent)))
    assert _tried(result)[-1] == "privileged"
    assert result.status == NOT_HELD
    assert "Looking for GPU device id for pod" in result.text()


def test_a_pod_that_never_starts_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "START_SECONDS", 0)
    creating = {"phase": "Pending", "state": {"waiting": {"reason": "ContainerCreating"}}}
    result = _probe(Board({**ALL_FAIL, "plain": creating}))
    assert (result.status, result.attempts[-1].evidence) == (NOT_RUN, ())


def test_no_rung_that_holds_is_said() -> None:
    result = _probe(Board(ALL_FAIL))
    assert result.status == NOT_HELD
    assert "No rung held on jetson-1" in result.text()
    assert "Write into" not in result.text()


def test_a_refusal_is_told_in_its_words_and_is_no_failure_of_the_rung() -> None:
    result = _probe(Board({**ALL_FAIL, "libraries": refused(GUARD)}))
    assert _tried(result)[-1] == "libraries"
    assert json.loads(result.json())["attempts"][-1] | {"means": ""} == {
        "rung": "libraries",
        "adds": ["runtime_class", "variables", "libraries"],
        "pod_security": "privileged",
        "symptom": "refused",
        "means": "",
        "evidence": [GUARD],
    }
    assert "pod_guard.exempt_namespaces" in result.text()


def test_refusals_alone_are_no_answer_of_the_board() -> None:
    result = _probe(Board({"plain": refused(GUARD)}))
    assert (result.status, _tried(result)) == (NOT_RUN, ["plain"])
    assert result.sentence == "The probe could not find out whether the workaround is needed on jetson-1."


def test_a_pod_whose_namespace_somebody_removes_is_not_refused() -> None:
    message = f"pods is forbidden: unable to create new content in namespace {NAMESPACE} because it is being terminated"
    board = Board({"plain": refused(message)})
    with pytest.raises(OperationError, match=r"because it is being terminated\. Somebody else probes"):
        _probe(board)
    assert board.objects == {}


def test_a_refusal_that_does_not_last_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLED_SECONDS", 60.0)
    script = {**ALL_FAIL, "libraries": refused("violates PodSecurity")}
    board = Board(script)

    def settle(_: httpx2.Request) -> None:
        if len(board.pods) == 6:
            script["libraries"] = HELD

    board.before = settle
    result = _probe(board)
    assert (result.status, result.settings_to_write["reservation"]["privilege_by_node"]["jetson-1"]) == (
        FOUND,
        "devices",
    )
    assert len(board.pods) == 7


@pytest.mark.parametrize("right", ["create namespaces", "delete namespaces", "create pods", "get pods/log"])
def test_who_lacks_a_right_makes_nothing(right: str) -> None:
    board = Board(ALL_FAIL, lacking=frozenset({right}))
    with pytest.raises(OperationError, match=rf"may not {right}, which the probe needs\. Nothing was changed"):
        _probe(board)
    assert board.changes == 0


def _secret(name: str, kind: str) -> Json:
    return {"metadata": {"name": name}, "type": kind, "data": {".dockerconfigjson": "e30="}}


def test_the_pods_are_pulled_with_what_kais_own_are_pulled_with() -> None:
    stack = changed(stack_of_one(), "kai.images.pull_secrets", ["site", "team", "missing"])
    theirs = {
        f"/api/v1/namespaces/kai-resource-reservation/secrets/{name}": _secret(name, kind)
        for name, kind in (("site", "kubernetes.io/dockerconfigjson"), ("team", "Opaque"))
    }
    board = Board({**ALL_FAIL, "variables": HELD}, objects=dict(theirs))
    assert _probe(board, stack).status == FOUND
    [copied] = [manifest for manifest in board.made if manifest["kind"] == "Secret"]
    assert copied["metadata"] == {"name": "site", "namespace": NAMESPACE, "labels": board.pods[0]["metadata"]["labels"]}
    assert {key: copied[key] for key in ("type", "data")} == {
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": "e30="},
    }
    names = [{"name": name} for name in ("site", "team", "missing")]
    assert all(pod["spec"]["imagePullSecrets"] == names for pod in board.pods)
    assert board.objects == theirs


def test_secrets_are_asked_for_only_where_the_settings_name_some() -> None:
    lacking = frozenset({"get secrets"})
    board = Board({**ALL_FAIL, "variables": HELD}, lacking=lacking)
    assert _probe(board).status == FOUND
    assert not any("imagePullSecrets" in pod["spec"] for pod in board.pods)
    with pytest.raises(OperationError, match="may not get secrets"):
        _probe(Board(ALL_FAIL, lacking=lacking), changed(stack_of_one(), "kai.images.pull_secrets", ["site"]))


def test_a_log_that_can_not_be_read_is_told() -> None:
    board = Board(ALL_FAIL, unreadable="dial tcp 10.0.0.7:10250: i/o timeout")
    result = _probe(board)
    assert "(its log can't be read: dial tcp 10.0.0.7:10250: i/o timeout)" in result.attempts[0].evidence
    assert result.attempts[0].symptom is ladder.Symptom.OTHER


def test_a_failing_admission_webhook_is_no_refusal() -> None:
    with pytest.raises(OperationError, match="failed calling webhook"):
        _probe(Board({"plain": refused('failed calling webhook "x"', 500)}))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "when", [("POST", "/pods"), ("GET", "/log"), ("DELETE", "/pods/probe-plain"), ("POST", "/roles")]
)
def test_a_signal_leaves_nothing(number: int, status: int, when: tuple[str, str]) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    board = Board(ALL_FAIL)
    sent: list[str] = []

    def interrupt(request: httpx2.Request) -> None:
        if (request.method, True) == (when[0], request.url.path.endswith(when[1])) and not sent:
            sent.append(request.url.path)
            os.kill(os.getpid(), number)

    board.before = interrupt
    with pytest.raises(SystemExit) as ended:
        _probe(board)
    assert ended.value.code == status
    assert len(sent) == 1
    assert board.made
    assert board.objects == {}
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_an_impatient_second_signal_does_not_cut_the_cleanup() -> None:
    board = Board(ALL_FAIL)

    def interrupt(request: httpx2.Request) -> None:
        if request.url.path.endswith("/log") or request.method == "DELETE":
            os.kill(os.getpid(), signal.SIGINT)

    board.before = interrupt
    with pytest.raises(SystemExit):
        _probe(board)
    assert board.objects == {}


def test_an_error_on_the_way_leaves_nothing_either() -> None:
    board = Board(ALL_FAIL)

    def vanish(request: httpx2.Request) -> None:
        if request.method == "GET" and request.url.path.endswith("/pods/probe-variables"):
            board.objects.pop(request.url.path, None)

    board.before = vanish
    with pytest.raises(OperationError, match="Somebody removed the probe's pod 'probe-variables'"):
        _probe(board)
    assert board.objects == {}


def _left(board: Board, **labels: str) -> None:
    board.objects[PLACE] = {"metadata": {"name": NAMESPACE, "uid": "1", "labels": labels}}


def _pod(namespace: str, name: str, labels: Mapping[str, str], gpus: int = 1) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container: dict[str, Any] = {"image": "x", "resources": {"limits": limits}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"containers": [container]},
        "status": {"phase": "Running"},
    }


def test_what_a_killed_run_left_goes_first() -> None:
    board = Board({**ALL_FAIL, "variables": HELD})
    _left(board, **{LABEL: "true"})
    # It holds the only GPU.
    board.objects[f"{PLACE}/pods/probe-root"] = _pod(NAMESPACE, "probe-root", {LABEL: "true"})
    assert _probe(board).status == FOUND
    assert board.deleted[:2] == [f"{PLACE}/pods/probe-root", PLACE]
    assert board.objects == {}


def test_pods_of_others_in_the_probes_namespace_stay_and_so_does_it() -> None:
    board = Board(ALL_FAIL)
    _left(board, **{LABEL: "true"})
    board.objects[f"{PLACE}/pods/guest"] = _pod(NAMESPACE, "guest", {})
    ours, theirs = f"{PLACE}/serviceaccounts/privilege-probe", RIGHTS + "/roles/privilege-probe"
    board.objects[ours] = {"metadata": {"name": "privilege-probe", "labels": {LABEL: "true"}}}
    board.objects[theirs] = {"metadata": {"name": "privilege-probe"}}
    board.objects[f"{PLACE}/pods/probe-root"] = _pod(NAMESPACE, "probe-root", {LABEL: "true"})
    board.objects[f"{PLACE}/secrets/site"] = {"metadata": {"name": "site", "labels": {LABEL: "true"}}}
    with pytest.raises(OperationError, match="pods are in it that are not the probe's: guest"):
        _probe(board, changed(stack_of_one(), "kai.images.pull_secrets", ["site"]))
    assert board.deleted == [f"{PLACE}/pods/probe-root", ours, f"{PLACE}/secrets/site"]


def test_somebody_elses_namespace_is_left_alone() -> None:
    board = Board(ALL_FAIL)
    _left(board, team="a")
    with pytest.raises(OperationError, match="exists and is not the probe's: it lacks the label"):
        _probe(board)
    assert board.changes == 0


def test_a_namespace_that_does_not_go_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "GONE_SECONDS", 0.0)
    board = Board({**ALL_FAIL, "variables": HELD}, stays=frozenset({PLACE}))
    with pytest.raises(OperationError, match=f"kubectl delete namespace {NAMESPACE}"):
        _probe(board)


def test_a_namespace_that_is_on_its_way_is_waited_for() -> None:
    board = Board({**ALL_FAIL, "variables": HELD}, deletes={PLACE: (409, "all content is being removed")})
    _left(board, **{LABEL: "true"})
    looks: list[str] = []

    def go(request: httpx2.Request) -> None:
        if (request.method, request.url.path) == ("GET", PLACE):
            looks.append(PLACE)
            if len(looks) == 5:
                board.deletes.clear()
                board.objects.clear()

    board.before = go
    assert _probe(board).status == FOUND


def test_a_deletion_that_is_refused_is_told() -> None:
    board = Board(ALL_FAIL, deletes={f"{PLACE}/pods/probe-plain": (403, "pods is forbidden")})
    with pytest.raises(ClusterError, match=r"refuses to delete .*probe-plain: pods is forbidden"):
        _probe(board)


def test_a_login_that_ends_while_it_runs_does_not_hide_what_it_left() -> None:
    board = Board(ALL_FAIL)

    def refuse_the_login_after_the_first_pod(_: httpx2.Request) -> None:
        board.logged_out = bool(board.pods)

    board.before = refuse_the_login_after_the_first_pod
    with pytest.raises(LoginError, match=rf"(?s)The login has ended.*kubectl delete namespace {NAMESPACE}"):
        _probe(board)
    assert f"{PLACE}/pods/probe-plain" in board.objects


def test_an_api_server_that_is_away_while_it_cleans_up_only_costs_time() -> None:
    board = Board({**ALL_FAIL, "variables": HELD})
    away = iter([True, True])

    def be_away(request: httpx2.Request) -> None:
        if (request.method, request.url.path) == ("DELETE", PLACE) and next(away, False):
            raise httpx2.ConnectError("away")

    board.before = be_away
    assert _probe(board).status == FOUND
    assert board.objects == {}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([jetson("jetson-2")], "The cluster has no node 'jetson-1'"),
        ([jetson(ready="False")], "is not Ready"),
        ([jetson(ready="Unknown")], "is not Ready"),
        ([jetson(gpus=0)], "advertises no nvidia.com/gpu"),
    ],
)
def test_a_node_that_can_not_be_probed_is_told_before_anything_is_made(nodes: list[Json], says: str) -> None:
    board = Board(ALL_FAIL, nodes=nodes)
    with pytest.raises(OperationError, match=says):
        _probe(board)
    assert board.changes == 0


def test_a_gpu_that_somebody_has_is_not_taken() -> None:
    board = Board(ALL_FAIL)
    held = "/api/v1/namespaces/kai-resource-reservation/pods/gpu-reservation-1"
    board.objects[held] = _pod("kai-resource-reservation", "gpu-reservation-1", {"app": "kai-resource-reservation"})
    with pytest.raises(OperationError, match="no free GPU; it is held by kai-resource-reservation/gpu-reservation-1"):
        _probe(board)
    assert board.changes == 0
    board.objects[held]["status"]["phase"] = "Succeeded"
    assert _probe(board).status == NOT_HELD
    assert list(board.objects) == [held]


def test_stacks_and_nodes_that_have_no_answer_are_refused() -> None:
    with pytest.raises(OperationError, match="This is an x86 stack"):
        check_stack(parse(x86()), "gpu-1")
    with pytest.raises(OperationError, match=r"'gpu-1' is not listed under platform\.tegra_nodes"):
        check_stack(parse(stack_of_one()), "gpu-1")
    check_stack(parse(stack_of_one()), "jetson-1")


def test_the_image_is_the_one_that_kai_starts_in_the_stack() -> None:
    stack = stack_of_one()
    image = "ghcr.io/kai-scheduler/kai-scheduler/resourcereservation"
    assert kai_image(parse(stack)) == f"{image}:{KAI_SCHEDULER.version}"
    stack = changed(stack, "kai.images.registry", "registry.example.com/kai")
    assert (
        kai_image(parse(changed(stack, "kai.image_tag", "mine"))) == "registry.example.com/kai/resourcereservation:mine"
    )
    for chart in ({"source": "./charts/kai"}, {"version": "~0.18.0"}):
        with pytest.raises(OperationError, match="--image REGISTRY/resourcereservation:TAG"):
            kai_image(parse(changed(stack, "kai.chart", chart)))


def test_groups_are_the_named_ones_then_the_settings_then_video() -> None:
    assert device_groups(parse(rungs()), [7]) == (7,)
    assert device_groups(parse(rungs()), []) == (44, 104)
    assert device_groups(parse(stack_of_one()), []) == (44,)
