"""`verify --pre`: preflight's findings as steps, what could not be seen, and that nothing is changed."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from cluster.access.client import Cluster
from config.stack import StackSettings
from manifests import every_object
from manifests.ownership import field_manager
from operations import reading
from operations.__main__ import app
from operations.doctor.reading import read_facts
from operations.exit_status import ExitStatus
from operations.verify import before, rights
from operations.verify.steps import Outcome, Report, Step
from testbed.stacks import STACK_FILES, Json, changed, jetson, monitoring_full, operator_elsewhere, parse, x86
from tests.support.api_server import DEPLOYMENTS, POLICIES, RUNTIME_CLASS, Answer, ApiServer, connected, node

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_NODES = "/api/v1/nodes"
_STACK = "kai-anywhere/jetson"
_OF_HELM = {"meta.helm.sh/release-name": "theirs", "meta.helm.sh/release-namespace": "gpu-operator"}


@pytest.fixture(autouse=True)
def _all_rights(api: ApiServer) -> None:
    api.creates[_REVIEWS] = Answer(201, json.dumps({"status": {"allowed": True}}).encode())


@pytest.fixture
def cluster(config_path: str) -> Iterator[Cluster]:
    with closing(Cluster.open(config_path)) as connection:
        yield connection


def _steps(cluster: Cluster, stack: Json, folder: Path = Path()) -> dict[str, Step]:
    settings = parse(stack)
    steps = before.verify(cluster, settings, _STACK, read_facts(cluster, settings, _STACK), folder)
    return {step.name: step for step in steps}


def test_a_cluster_that_is_ready_holds_and_nothing_is_changed(api: ApiServer, cluster: Cluster) -> None:
    steps = _steps(cluster, jetson())
    assert list(steps) == ["API server", "nodes", "room", "rights", "charts"]
    assert {step.outcome for step in steps.values()} == {Outcome.HELD}
    assert Report(steps=tuple(steps.values())).status == ExitStatus.WELL
    assert {request.path for request in api.asked if request.method != "GET"} == {_REVIEWS}


def test_what_can_be_seen_of_a_node_is_shown_and_what_can_not_is_said(api: ApiServer, cluster: Cluster) -> None:
    board = node("jetson-1")
    board["status"]["nodeInfo"] |= {"kernelVersion": "5.15.148-tegra", "containerRuntimeVersion": "containerd://1.7.27"}
    api.serve(_NODES, {"items": [board, node("cpu-1", architecture="amd64", gpus=0)]})
    evidence = _steps(cluster, jetson())["nodes"].evidence
    facts, unseen = evidence
    assert facts == (
        "jetson-1: architecture arm64, kernel 5.15.148-tegra, container runtime containerd://1.7.27, memory 131072 "
        "MiB; GPU memory 122880 MiB, as the settings say"
    )
    assert unseen == "not seen: drivers, and the files of container runtimes: they are on the hosts."


def test_gpus_that_nobody_has_detected_yet_are_not_claimed(api: ApiServer, cluster: Cluster) -> None:
    api.serve(_NODES, {"items": [node("gpu-1", architecture="amd64", gpus=0)]})
    step = _steps(cluster, x86())["nodes"]
    assert step.outcome is Outcome.HELD
    assert step.evidence[0].startswith("not seen: which nodes have a GPU.")
    marked = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    api.serve(_NODES, {"items": [node("gpu-1", architecture="amd64", gpus=0, labels=marked)]})
    assert "GPU memory not seen: GPU Feature Discovery says it" in _steps(cluster, x86())["nodes"].evidence[0]


def test_an_api_server_without_the_carrier_fails_with_the_ways_out(api: ApiServer, cluster: Cluster) -> None:
    api.serve("/version", {"major": "1", "minor": "33", "gitVersion": "v1.33.1"})
    del api.answers[POLICIES]
    step = _steps(cluster, jetson())["API server"]
    assert step.outcome is Outcome.FAILED
    assert any("reservation.carrier 'policy' can't work: the API server is v1.33.1" in line for line in step.evidence)
    assert "It can have the carrier webhook." in step.evidence


def test_a_node_that_is_not_there_and_one_that_is_not_ready_fail(api: ApiServer, cluster: Cluster) -> None:
    other = node("jetson-2")
    other["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "no network"}]
    api.serve(_NODES, {"items": [other]})
    step = _steps(cluster, jetson())["nodes"]
    assert step.says == "2 errors stop the install."
    text = "\n".join(step.evidence)
    assert "error: the stack names the node 'jetson-1', which the cluster does not have." in text
    assert "error: node 'jetson-2' is not ready." in text


def test_somebody_else_s_kai_and_a_missing_runtime_class_are_in_the_way(api: ApiServer, cluster: Cluster) -> None:
    theirs = {
        "metadata": {"name": "kai-operator", "namespace": "theirs"},
        "spec": {"template": {"spec": {"containers": [{"image": "ghcr.io/kai-scheduler/kai-scheduler/operator:v1"}]}}},
    }
    api.serve(DEPLOYMENTS, {"items": [theirs]})
    del api.answers[RUNTIME_CLASS]
    step = _steps(cluster, operator_elsewhere())["room"]
    text = "\n".join(step.evidence)
    assert step.outcome is Outcome.FAILED
    assert "KAI scheduler that is not this stack's" in text
    assert "RuntimeClass 'nvidia' is missing" in text
    assert "delete" not in text


def test_whatever_stops_the_first_up_is_in_the_way_beforehand(api: ApiServer, cluster: Cluster) -> None:
    """`nothing is in the way`, it said, and preflight refused the `up` that came next."""
    api.serve("/apis/scheduling.k8s.io/v1/priorityclasses", {"items": [{"metadata": {"name": "train"}}]})
    step = _steps(cluster, monitoring_full())["room"]
    assert step.says == "2 errors stop the install."
    text = "\n".join(step.evidence)
    assert "error: monitoring.service_monitor is true, and the cluster does not know ServiceMonitor and" in text
    assert "error: the cluster has PriorityClass 'train' already, and KAI's chart brings one of that name" in text
    assert "warning: monitoring.pull_secrets names the Secret 'site', which is not in namespace 'gpu-metrics'" in text


def test_the_namespace_of_an_operator_that_is_to_be_used_is_not_to_be_adopted(api: ApiServer, cluster: Cluster) -> None:
    theirs = {
        "metadata": {"name": "gpu-operator", "namespace": "gpu-operator", "annotations": _OF_HELM},
        "spec": {"template": {"spec": {"containers": [{"image": "nvcr.io/nvidia/gpu-operator:v26.7.2"}]}}},
    }
    api.serve(DEPLOYMENTS, {"items": [theirs]})
    api.serve("/api/v1/namespaces/gpu-operator", {"metadata": {"name": "gpu-operator", "uid": "1"}})
    api.serve("/api/v1/namespaces/gpu-operator/secrets", {"items": []})
    [line] = _steps(cluster, jetson())["room"].evidence
    assert "Use it: set gpu_operator.install: false." in line


def _there(api: ApiServer, manager: str) -> None:
    live = {"metadata": {"name": "edge", "managedFields": [{"manager": manager}]}}
    api.serve("/apis/scheduling.run.ai/v2/queues/edge", live)


def test_an_object_of_somebody_else_is_in_the_way(api: ApiServer, cluster: Cluster) -> None:
    _there(api, "kubectl")
    step = _steps(cluster, jetson())["room"]
    assert step.outcome is Outcome.FAILED
    [line] = step.evidence
    assert line.startswith("error: Queue 'edge' exists already and is not this stack's (written by kubectl).")


def test_an_object_that_the_settings_adopt_is_not(api: ApiServer, cluster: Cluster) -> None:
    _there(api, "kubectl")
    step = _steps(cluster, changed(jetson(), "cluster.adopt", ["Queue/edge"]))["room"]
    assert (step.outcome, step.evidence) == (
        Outcome.HELD,
        ("adopted: Queue/edge, whose values are kept and given back",),
    )


def test_a_stack_that_is_installed_is_told_so_and_not_called_in_its_own_way(api: ApiServer, cluster: Cluster) -> None:
    _there(api, field_manager(_STACK, "kai-scheduler-queue-edge"))
    step = _steps(cluster, jetson())["room"]
    assert step.outcome is Outcome.SKIPPED
    assert step.says.startswith("this stack is installed here already, or in part: 1 of its ")
    assert "make preflight" in step.says


@pytest.mark.parametrize(("path", "name"), [(_NODES, "nodes"), (DEPLOYMENTS, "room")])
def test_what_the_user_may_not_read_is_skipped_and_the_other_steps_are_not(
    api: ApiServer, cluster: Cluster, path: str, name: str
) -> None:
    api.fail(path, 403)
    steps = _steps(cluster, jetson())
    assert steps[name].outcome is Outcome.SKIPPED
    assert steps[name].says == "not seen: this user may not read what it takes."
    assert "(403)" in steps[name].evidence[0]
    assert steps["API server"].outcome is Outcome.HELD
    assert steps["charts"].outcome is Outcome.HELD


def test_a_namespace_that_is_being_deleted_is_in_the_way_and_one_that_can_not_be_seen_is_said(
    api: ApiServer, cluster: Cluster
) -> None:
    leaving = {"metadata": {"name": "kai-scheduler"}, "status": {"phase": "Terminating"}}
    api.serve("/api/v1/namespaces", {"items": [leaving]})
    step = _steps(cluster, jetson())["room"]
    assert step.outcome is Outcome.FAILED
    assert step.evidence[0].startswith("error: Namespace 'kai-scheduler' is being deleted, and takes no new objects.")
    api.fail("/api/v1/namespaces", 403)
    step = _steps(cluster, jetson())["room"]
    assert step.outcome is Outcome.HELD
    assert step.evidence[0].startswith("not seen: namespaces. ")


def test_a_local_chart_that_is_not_there_fails(cluster: Cluster, tmp_path: Path) -> None:
    step = _steps(cluster, changed(jetson(), "kai.chart.source", str(tmp_path / "gone")))["charts"]
    assert step.outcome is Outcome.FAILED
    assert "kai.chart.source is " in step.evidence[0]


def test_a_relative_chart_is_looked_for_where_the_program_runs(cluster: Cluster, tmp_path: Path) -> None:
    stack = changed(jetson(), "kai.chart.source", "./kai")
    (tmp_path / "kai").mkdir()
    (tmp_path / "kai" / "Chart.yaml").touch()
    assert _steps(cluster, stack, tmp_path)["charts"].outcome is Outcome.HELD
    assert _steps(cluster, stack, tmp_path / "elsewhere")["charts"].outcome is Outcome.FAILED


Asked = list[tuple[str, str]]


def _user(may: Callable[[str, str], bool], asked: Asked) -> Cluster:
    def answer(request: httpx2.Request) -> httpx2.Response:
        wish = json.loads(request.content)["spec"]["resourceAttributes"]
        asked.append((wish["verb"], wish["resource"]))
        return httpx2.Response(201, json={"status": {"allowed": may(wish["verb"], wish["resource"])}})

    return connected(answer)


def _rights(settings: StackSettings, may: Callable[[str, str], bool]) -> tuple[Step, Asked]:
    asked: Asked = []
    user = _user(may, asked)
    try:
        return rights.verify(user, settings), asked
    finally:
        user.close()


def test_an_administrator_is_asked_about_once() -> None:
    step, asked = _rights(parse(jetson()), lambda *_: True)
    assert (step.outcome, asked) == (Outcome.HELD, [("*", "*")])


def test_who_may_make_the_stack_s_objects_alone_is_no_administrator_and_that_is_said() -> None:
    step, asked = _rights(parse(jetson()), lambda verb, _: verb != "*")
    assert step.outcome is Outcome.SKIPPED
    assert "ClusterRoles" in step.says
    kinds = {manifest["kind"] for manifest in every_object.objects(parse(jetson())).values()}
    assert len({resource for verb, resource in asked if verb == "create"}) >= len(kinds)


def test_every_right_that_lacks_is_named_with_its_place() -> None:
    lacking = {("create", "queues"), ("patch", "nodes"), ("delete", "secrets")}
    step, _ = _rights(parse(jetson()), lambda verb, resource: verb != "*" and (verb, resource) not in lacking)
    assert step.outcome is Outcome.FAILED
    assert "create queues.scheduling.run.ai" in step.evidence
    assert "patch nodes" in step.evidence
    assert "delete secrets in namespace kai-scheduler" in step.evidence
    assert "delete secrets in namespace gpu-operator" in step.evidence


@pytest.mark.parametrize("mode", ["none", "after_up"])
def test_acting_as_the_binder_is_asked_for_where_the_stack_needs_it(mode: str) -> None:
    _, asked = _rights(parse(changed(jetson(), "validation", mode)), lambda verb, _: verb != "*")
    assert (("impersonate", "serviceaccounts") in asked) is (mode == "after_up")


@pytest.fixture
def run(config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    monkeypatch.setattr(reading, "ROOT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", config_path)

    def invoke(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["verify", "--pre", *options])
        return result.exit_code, result.output if result.exit_code == ExitStatus.USAGE else result.stdout

    return invoke


def test_the_command_prints_the_steps_and_ends_with_their_status(
    api: ApiServer, run: Callable[..., tuple[int, str]]
) -> None:
    code, text = run()
    assert code == ExitStatus.WELL
    assert text.startswith("held    API server: v1.36.2 is what this stack needs.\n")
    assert text.splitlines()[-1] == "5 held."
    api.serve(_NODES, {"items": []})
    assert run()[0] == ExitStatus.FAILED


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_was_verified_is_told_where_the_rest_can_not_be(api: ApiServer, options: tuple[str, ...]) -> None:
    """As where a webhook of others for every kind is away: what was found may have taken minutes, and be the cause."""
    said = {"kind": "Status", "code": 500, "message": 'failed calling webhook "all.example.com"'}
    api.creates[_REVIEWS] = Answer(500, json.dumps(said).encode())
    result = CliRunner().invoke(app, ["verify", "--pre", *options])
    assert 'with status 500: failed calling webhook "all.example.com"' in str(result.exception)
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("held")]
    assert [line.partition(":")[0] for line in lines] == ["held    API server", "held    nodes", "held    room"]


def test_the_command_s_json_is_that_of_verify(run: Callable[..., tuple[int, str]]) -> None:
    code, text = run("--json")
    assert code == ExitStatus.WELL
    assert [step.name for step in Report.model_validate_json(text).steps] == [
        "API server",
        "nodes",
        "room",
        "rights",
        "charts",
    ]


@pytest.mark.parametrize("options", [("--node", "jetson-1"), ("--evidence", "e.json")])
def test_options_of_an_installed_stack_do_not_go_with_it(
    run: Callable[..., tuple[int, str]], options: tuple[str, str]
) -> None:
    code, text = run(*options)
    assert code == ExitStatus.USAGE
    assert "--pre looks at the whole cluster" in " ".join(text.split())
    assert not Path("e.json").exists()
