"""The command itself: its output for people and programs, its options, and its exit statuses."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from operations.__main__ import app
from operations.doctor.checks import CHECKS, OF_HOSTS_ALONE
from operations.doctor.commands import hosts_of
from operations.doctor.facts import Source
from operations.doctor.hosts.answer import HostLookError, HostReport
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from testbed.stacks import STACK_FILES, jetson, of_hosts_alone, parse
from tests.support.api_server import ApiServer, kubeconfig, write_kubeconfig
from tests.support.doctor import PATHS, World, fraction, pod_group, unschedulable, well
from tests.support.hosts.examinations import jetson_examination, reports
from tests.support.hosts.settings import jetson_with_host

_REPORTS = "operations.doctor.commands.hosts_of"


@pytest.fixture
def world(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A cluster that is well, in KUBECONFIG; `_run` serves what became of it."""
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", kubeconfig(api.url)))
    monkeypatch.setenv("HOME", str(tmp_path))
    return well()


def _run(world: World, api: ApiServer, *options: str) -> Result:
    world.serve(api)
    return CliRunner().invoke(app, ["doctor", *options])


def test_a_cluster_that_is_well_is_one_line_and_status_0(world: World, api: ApiServer) -> None:
    result = _run(world, api)
    assert result.exit_code == ExitStatus.WELL
    assert result.stdout.splitlines() == [
        f"Nothing is wrong in the cluster at {api.url} (context 'loopback'): 110 checks done."
    ]


def test_where_something_could_not_be_read_nobody_says_that_nothing_is_wrong(world: World, api: ApiServer) -> None:
    world.serve(api)
    api.fail("/apis/node.k8s.io/v1/runtimeclasses", 403)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == ExitStatus.WARNINGS
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"Nothing is wrong in what could be looked at in the cluster at {api.url}")
    assert last.endswith(" not.")


def test_a_cause_has_evidence_a_remedy_and_what_follows(world: World, api: ApiServer) -> None:
    world.scale("kai-scheduler-default")
    for number in range(6):
        world.lists["pods"].append(fraction(f"waits-{number}"))
        world.lists["podgroups"].append(pod_group(f"pg-waits-{number}"))
    result = _run(world, api)
    assert result.exit_code == ExitStatus.FAILED
    assert "\x1b[" not in result.stdout
    waiting = ", ".join(f"Pod default/waits-{number}" for number in range(4))
    assert result.stdout.splitlines()[:-1] == [
        "error KA0204 KAI's scheduler does not run",
        "  KAI's scheduler is switched off: Deployment kai-scheduler/kai-scheduler-default is scaled to 0.",
        "    Deployment kai-scheduler/kai-scheduler-default: spec.replicas=0",
        "  Cause: The scheduler's Deployment is scaled to 0, is missing, or has no pod that is ready.",
        "  Do: kubectl --namespace kai-scheduler scale deployment kai-scheduler-default --replicas=1",
        f"  Hence: KA0706 KAI says nothing about a pod that waits: {waiting} and 2 more",
        "  More: docs/troubleshooting.md#ka0204",
        "",
    ]
    assert result.stdout.splitlines()[-1].startswith("1 error, 0 warnings in ")


def test_json_is_the_whole_output(world: World, api: ApiServer) -> None:
    world.scale("binder")
    result = _run(world, api, "--json")
    assert result.exit_code == ExitStatus.FAILED
    assert [problem["code"] for problem in json.loads(result.stdout)["problems"]] == ["KA0205"]


def test_what_could_not_be_seen_is_said_and_is_status_4(world: World, api: ApiServer) -> None:
    world.refused[PATHS["deployments"]] = 403
    result = _run(world, api)
    assert result.exit_code == ExitStatus.WARNINGS
    assert "not seen: Deployments. The cluster at " in result.stdout
    assert "  Not checked: KA0101, KA0102," in result.stdout


def test_suppressed_findings_are_counted(world: World, api: ApiServer) -> None:
    world.scale("binder")
    result = _run(world, api, "--suppress", "KA0205")
    assert result.exit_code == ExitStatus.WELL
    assert result.stdout.rstrip().endswith("110 checks done; 1 finding suppressed.")


def test_a_code_that_no_check_has_is_a_wrong_option(world: World, api: ApiServer) -> None:
    result = _run(world, api, "--suppress", "KA9999")
    assert result.exit_code == ExitStatus.USAGE
    assert "KA9999" in result.output


def test_nothing_is_called_well_where_no_check_is_left(world: World, api: ApiServer) -> None:
    result = _run(world, api, "--only", "kai", "--skip", "kai")
    assert result.exit_code == ExitStatus.USAGE
    assert "leave no check" in result.stderr


def test_warnings_fail_where_they_are_to(world: World, api: ApiServer) -> None:
    world.scale("podgroup-controller")
    assert _run(world, api).exit_code == ExitStatus.WARNINGS
    assert _run(world, api, "--fail-on", "warning").exit_code == ExitStatus.FAILED


def test_waiting_ends_when_nothing_fails_any_more(
    world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def repaired(seconds: float) -> None:
        assert seconds > 0
        world.scale("binder", 1)
        world.one("deployments", "binder")["status"] = {"availableReplicas": 1}
        world.serve(api)

    monkeypatch.setattr("operations.doctor.commands.time.sleep", repaired)
    world.scale("binder")
    result = _run(world, api, "--wait", "600")
    assert result.exit_code == ExitStatus.WELL
    [progress] = result.stderr.splitlines()
    assert progress.endswith(" of 600 s: KA0205")
    assert "Nothing is wrong" in result.stdout


def test_an_api_server_that_is_away_while_doctor_waits_only_costs_time(
    world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def restarted(seconds: float) -> None:
        looks.append(seconds)
        world.scale("binder", 1)
        world.one("deployments", "binder")["status"] = {"availableReplicas": 1}
        world.serve(api)
        if len(looks) == 1:
            api.fail("/version", 503)

    monkeypatch.setattr("operations.doctor.commands.time.sleep", restarted)
    world.scale("binder")
    result = _run(world, api, "--wait", "600")
    assert result.exit_code == ExitStatus.WELL
    first, second = result.stderr.splitlines()
    assert first.endswith(" of 600 s: KA0205")
    assert second.endswith(f" of 600 s: The cluster at {api.url} answered GET /version with status 503.")


def test_a_cluster_that_has_never_answered_is_not_waited_for(
    world: World, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operations.doctor.commands.time.sleep", pytest.fail)
    world.serve(api)
    api.fail("/version", 503)
    result = CliRunner().invoke(app, ["doctor", "--wait", "600"])
    assert "with status 503" in str(result.exception)


def test_what_doctor_has_to_be_done_is_done_in_the_cluster_that_it_looked_at(
    world: World, api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = kubeconfig(api.url)
    content["contexts"].append({"name": "mine", "context": {"cluster": "production", "user": "admin"}})
    content["clusters"].append({"name": "production", "cluster": {"server": "http://127.0.0.1:9"}})
    file = write_kubeconfig(tmp_path / "both", content | {"current-context": "mine"})
    monkeypatch.setenv("KUBECONFIG", file)
    world.scale("kai-scheduler-default")
    scale = "--namespace kai-scheduler scale deployment kai-scheduler-default --replicas=1"
    result = _run(world, api, "--context", "loopback")
    assert f"  Do: kubectl --kubeconfig {file} --context loopback {scale}" in result.stdout.splitlines()


def test_a_pod_is_one_sentence_with_evidence(world: World, api: ApiServer) -> None:
    world.scale("binder")
    world.lists["pods"].append(fraction("waits"))
    world.lists["podgroups"].append(pod_group("pg-waits"))
    result = _run(world, api, "pod", "waits")
    assert result.exit_code == ExitStatus.FAILED
    first, *rest = result.stdout.splitlines()
    assert first == (
        "Pod default/waits is Pending because KAI's binder is switched off: Deployment kai-scheduler/binder is scaled "
        "to 0."
    )
    assert "  Deployment kai-scheduler/binder: spec.replicas=0" in rest
    assert _run(world, api, "pod", "arm").exit_code == ExitStatus.WELL
    said = json.loads(_run(world, api, "pod", "waits", "--json").stdout)
    assert (said["sentence"], said["code"], said["runs"]) == (first, "KA0205", False)


_ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
"""What sets a terminal's title, clears it, colours it and turns text round."""


def test_nothing_that_a_pod_says_of_itself_commands_the_terminal(world: World, api: ApiServer) -> None:
    refused = fraction("refused")
    refused["metadata"]["annotations"]["gpu-memory"] = f"{_ESCAPES}4Gi"
    world.lists["pods"] += [refused, fraction("waits")]
    said = unschedulable(f"no\n{_ESCAPES}room")
    world.lists["podgroups"] += [pod_group("pg-waits", **said), pod_group("pg-refused")]
    for options in ((), ("pod", "refused"), ("pod", "waits")):
        output = _run(world, api, *options).stdout
        assert "4Gi" in output or "room" in output
        assert all(line.isprintable() for line in output.splitlines())


@pytest.mark.parametrize("options", [("--context", "prod"), ("--stack", "x86"), ("--json",)])
def test_an_option_before_pod_is_refused_since_pod_would_look_at_another_cluster(
    options: tuple[str, ...], world: World, api: ApiServer
) -> None:
    result = _run(world, api, *options, "pod", "arm")
    assert result.exit_code == ExitStatus.USAGE
    assert f"{options[0]} stands before `pod`" in " ".join(result.stderr.replace("│", "").split())
    assert api.asked == []


def test_a_pod_that_is_not_there_could_not_be_looked_at(world: World, api: ApiServer) -> None:
    result = _run(world, api, "pod", "nobody")
    assert isinstance(result.exception, OperationError)


def test_nothing_is_changed(world: World, api: ApiServer) -> None:
    world.scale("binder")
    _run(world, api)
    _run(world, api, "pod", "arm")
    assert {request.method for request in api.asked} == {"GET"}


def test_requests_do_not_grow_with_the_cluster(world: World, api: ApiServer) -> None:
    _run(world, api)
    few = len(api.asked)
    world.lists["pods"] += [fraction(f"pod-{number}", node="jetson-1") for number in range(400)]
    world.lists["podgroups"] += [pod_group(f"pg-pod-{number}") for number in range(400)]
    api.asked.clear()
    _run(world, api)
    assert len(api.asked) == few


_OF_TENANT = (
    ("pods", "/api/v1/namespaces/default/pods"),
    ("podgroups", "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"),
    ("bindrequests", "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests"),
)


def _as_tenant(world: World, api: ApiServer, *of_namespace: str) -> None:
    """Somebody who may read nothing but these lists, in the namespace default."""
    world.refused = dict.fromkeys(PATHS.values(), 403) | {path: 403 for _, path in _OF_TENANT}
    for name, path in _OF_TENANT:
        if name in of_namespace:
            del world.refused[path]
            there = [manifest for manifest in world.lists[name] if manifest["metadata"]["namespace"] == "default"]
            api.serve(path, {"items": there})


def test_who_may_read_his_own_namespace_is_told_why_his_pod_waits(world: World, api: ApiServer) -> None:
    said = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has room"}]
    world.lists["pods"].append(fraction("waits", conditions=said))
    _as_tenant(world, api, "pods")
    result = _run(world, api, "pod", "waits")
    assert result.exit_code == ExitStatus.FAILED
    assert result.stdout.startswith("Pod default/waits is Pending: no node has room\n")
    assert "PodGroup pg-waits: not found" not in result.stdout
    assert "  Not seen: " in result.stdout
    assert "pods (but for namespace default)" in result.stdout
    assert "nodes, " in result.stdout


def test_what_kai_says_in_his_namespace_is_read_with_the_rights_that_there_are(world: World, api: ApiServer) -> None:
    world.lists["pods"].append(fraction("waits"))
    world.lists["podgroups"].append(pod_group("pg-waits", **unschedulable("the queue is full")))
    _as_tenant(world, api, "pods", "podgroups")
    result = _run(world, api, "pod", "waits", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["status"]) == (ExitStatus.FAILED, ExitStatus.FAILED)
    assert "PodGroup pg-waits: queue default-queue" in answer["evidence"]
    assert any("the queue is full" in line for line in answer["evidence"])
    assert answer["not_checked"]


def test_a_pod_of_his_that_runs_is_status_0(world: World, api: ApiServer) -> None:
    _as_tenant(world, api, "pods")
    assert _run(world, api, "pod", "arm").exit_code == ExitStatus.WELL


def test_a_pod_that_is_not_in_his_namespace_is_not_there(world: World, api: ApiServer) -> None:
    _as_tenant(world, api, "pods")
    result = _run(world, api, "pod", "arms")
    assert isinstance(result.exception, OperationError)
    assert "There is no pod 'arms' in namespace 'default'. Did you mean 'arm'?" in str(result.exception)


def test_who_may_not_read_the_namespace_is_told_which_right_he_lacks(world: World, api: ApiServer) -> None:
    _as_tenant(world, api)
    result = _run(world, api, "pod", "arm")
    assert isinstance(result.exception, OperationError)
    assert str(result.exception).startswith("The pods of namespace 'default' can't be read: The cluster at ")
    assert "There is no pod" not in str(result.exception)


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, HostReport]:
    """A stack that prepares hosts alone, what its host says, and a kubeconfig that nobody named."""
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path / "Pulumi.rack.yaml")
    of_hosts_alone(tmp_path / "Pulumi.rack.yaml")
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube" / "config", kubeconfig("http://127.0.0.1:9"))
    for module in ("operations.reading", "operations.target"):
        monkeypatch.setattr(f"{module}.ROOT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    said = reports(jetson(), {"jetson-1": jetson_examination()})
    monkeypatch.setattr(_REPORTS, lambda *_: said)
    return said


def test_hosts_alone_are_asked_without_a_cluster(rack: dict[str, HostReport]) -> None:
    assert rack["jetson-1"].examination is not None
    result = CliRunner().invoke(app, ["doctor", "--hosts", "--stack", "rack"])
    assert result.exit_code == ExitStatus.WELL, result.output
    [line] = result.stdout.splitlines()
    assert line == f"Nothing is wrong in the hosts of stack 'rack': {len(OF_HOSTS_ALONE)} checks done."
    said = json.loads(CliRunner().invoke(app, ["doctor", "--only", "hosts", "--stack", "rack", "--json"]).stdout)
    assert (said["server"], said["context"], said["not_checked"]) == ("", "", [])


def test_what_is_wrong_with_hosts_alone_is_found_and_what_needs_their_cluster_is_not_judged(
    rack: dict[str, HostReport],
) -> None:
    rack["jetson-1"] = replace(rack["jetson-1"], examination=None, trouble="Connection refused")
    result = CliRunner().invoke(app, ["doctor", "--hosts", "--stack", "rack"])
    assert result.exit_code == ExitStatus.WARNINGS, result.output
    assert result.stdout.startswith("warning KA1001 A host could not be looked at\n")
    needs_cluster = [check.code for check in CHECKS if Source.HOSTS in check.needs and check not in OF_HOSTS_ALONE]
    assert needs_cluster == ["KA1023", "KA1024"]
    assert not any(code in result.stdout for code in needs_cluster)


def test_hosts_alone_that_can_not_be_asked_are_a_warning_with_the_reason(
    rack: dict[str, HostReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise HostLookError("pulumi can't decrypt the secrets")

    monkeypatch.setattr(_REPORTS, asked)
    result = CliRunner().invoke(app, ["doctor", "--hosts", "--stack", "rack"])
    assert (bool(rack), result.exit_code) == (True, ExitStatus.WARNINGS)
    assert "pulumi can't decrypt the secrets" in result.stdout
    assert "Nothing is wrong in what could be looked at in the hosts of stack 'rack': 0 checks done" in result.stdout


def test_the_secrets_of_hosts_are_those_of_the_project_that_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "Pulumi.yaml").write_text("name: gpus\nruntime: yaml\n", encoding="utf-8")
    (tmp_path / ".project").symlink_to(theirs)
    pulumi = tmp_path / "pulumi"
    answer = json.dumps({"gpus:lab-key": {"value": "a key", "secret": True}})
    pulumi.write_text(f"#!/bin/sh\ncase \"$*\" in *'--cwd {theirs}') echo '{answer}';; *) echo '{{}}';; esac\n")
    pulumi.chmod(0o755)
    asked: list[object] = []
    monkeypatch.setattr("operations.target.ROOT", tmp_path)
    monkeypatch.setattr("toolchain.environment", lambda _: {"PATH": f"{tmp_path}:/bin"})
    monkeypatch.setattr("operations.doctor.hosts.asking.ask", lambda _, secrets, __: asked.append(secrets))
    hosts_of("rack", parse(jetson_with_host()))
    assert asked == [{"lab-key": "a key"}]


def test_hosts_alone_whose_cluster_is_named_are_looked_at_with_it(
    world: World, api: ApiServer, rack: dict[str, HostReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rack
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", kubeconfig(api.url)))
    result = _run(world, api, "--hosts", "--stack", "rack")
    assert f"the cluster at {api.url}" in result.stdout.splitlines()[-1]
    assert api.asked


def test_hosts_alone_without_hosts_asked_is_told_both_ways_out(rack: dict[str, HostReport]) -> None:
    assert rack
    result = CliRunner().invoke(app, ["doctor", "--stack", "rack"])
    assert "KUBECONFIG, or --context. `kai-anywhere doctor --hosts --stack rack` asks" in str(result.exception)


def test_no_host_is_asked_with_options_of_pulumi_that_somebody_has_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_OPTION_CONFIG_FILE", "other.yaml")
    with pytest.raises(OperationError, match=r"unset PULUMI_OPTION_CONFIG_FILE$"):
        hosts_of("rack", parse(jetson_with_host()))
