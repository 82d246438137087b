"""What a failed command of the engine leads to."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ClusterUnreachableError
from operations.engine import Checkpoint, check_protection, destroy, pulumi, repair, select_stack, up
from operations.errors import OperationError
from operations.target import Target
from testbed.stacks import Json, changed, jetson, parse
from tests.support.hosts.settings import jetson_with_host


@pytest.mark.parametrize(("stack", "is_told"), [(jetson_with_host(), True), (jetson(), False)], ids=["hosts", "none"])
def test_a_failed_run_of_a_stack_with_hosts_names_the_page_of_their_errors(
    stack: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    program = tmp_path / "pulumi"
    program.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(stack), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(OperationError, match=r"^pulumi up failed \(status 255\); the reason is above\.") as caught:
        pulumi(target, "up")
    assert ("docs/hosts.md" in str(caught.value)) is is_told


@pytest.mark.parametrize(
    ("arguments", "is_told"), [(("up",), True), (("destroy",), True), (("up", "--yes"), False), (("preview",), False)]
)
def test_where_pulumi_can_not_ask_its_failure_names_what_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], *, is_told: bool
) -> None:
    monkeypatch.setattr("operations.engine.watched", lambda *_: 2)
    with pytest.raises(OperationError) as caught:
        pulumi(Target("jetson", parse(jetson()), tmp_path, {}, ()), *arguments)
    assert ("PULUMI_SKIP_CONFIRMATIONS=true agrees" in str(caught.value)) is is_told, "make has no option --yes"


@pytest.mark.parametrize(
    ("name", "line"),
    [("KILL", "Killed. The system does so where memory runs short. The same"), ("PIPE", "Broken pipe. The same")],
)
def test_a_killed_pulumi_is_told_as_that_since_it_gave_no_reason(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pulumi"
    program.write_text(f"#!/bin/sh\nkill -{name} $$\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(OperationError, match=rf"^pulumi up was ended by a signal: {line} command goes on from what"):
        pulumi(target, "up")


@pytest.mark.parametrize("command", [up, destroy])
def test_a_kubeconfig_that_is_not_there_is_told_before_a_login_is_asked_for(
    command: Callable[[Target], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    # No pulumi is there to ask for one.
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": str(tmp_path)}, ())
    with pytest.raises(ClusterUnreachableError, match=f"No kubeconfig at {tmp_path / 'missing'}"):
        command(target)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "error: passphrase must be set with PULUMI_CONFIG_PASSPHRASE",
            "for a new stack, choose one and keep it: export PULUMI_CONFIG_PASSPHRASE, or",
        ),
        (
            "error: unable to read PULUMI_CONFIG_PASSPHRASE_FILE: open ~/.kept: no such file or directory",
            "PULUMI_CONFIG_PASSPHRASE_FILE with the name of a file that holds it.",
        ),
        ("error: PULUMI_ACCESS_TOKEN must be set for login", "Log in to a backend first: pulumi login --local"),
        (
            'error: read ".pulumi/meta.yaml": stat /home/me/state/.pulumi/meta.yaml: permission denied',
            "Give your user the right to the file that pulumi names: a run as root may have made it.",
        ),
    ],
)
def test_a_stack_that_can_not_be_opened_has_the_remedy_of_its_cause(
    said: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pulumi"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 255\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(OperationError) as caught:
        select_stack(target)
    lines = str(caught.value).splitlines()
    assert said in lines[0]
    assert remedy in lines[1]
    assert len(lines) == 2, "one remedy, not both"


@pytest.mark.parametrize(
    ("environment", "file", "there", "refused"),
    [
        ({"PULUMI_CONFIG_PASSPHRASE": ""}, {}, False, True),
        ({"PULUMI_CONFIG_PASSPHRASE": ""}, {}, True, False),
        ({"PULUMI_CONFIG_PASSPHRASE": ""}, {"secretsprovider": "awskms://alias/a?region=b"}, False, False),
        ({"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_CONFIG_PASSPHRASE_FILE": "/f"}, {}, False, False),
        ({"PULUMI_CONFIG_PASSPHRASE": "long"}, {}, False, False),
        ({}, {}, False, False),
    ],
)
def test_no_stack_is_made_whose_secrets_an_empty_passphrase_protects(
    tmp_path: Path,
    environment: dict[str, str],
    file: Json,
    *,
    there: bool,
    refused: bool,
) -> None:
    program = tmp_path / "pulumi"
    answer = "" if there else "echo \"error: no stack named 'berlin' found\" >&2; exit 6"
    program.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin"} | environment
    content = {"config": {"kai-anywhere:settings": jetson()}} | file
    (tmp_path / "Pulumi.berlin.yaml").write_text(json.dumps(content), encoding="utf-8")
    target = Target("berlin", parse(jetson()), tmp_path, environment, ())
    if not refused:
        check_protection(target)
        return
    with pytest.raises(OperationError, match="secrets that nothing protects"):
        check_protection(target)


def test_ctrl_c_that_pulumi_took_as_a_key_is_an_interrupt_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pulumi"
    event = '{"stdoutEvent": {"message": "^C received; cancelling."}}'
    script = f"""#!/bin/sh
while [ "$1" != --event-log ]; do shift; done
echo '{event}' > "$2"
exit 1
"""
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(KeyboardInterrupt):
        pulumi(target, "up")


_PREVIEWED = ['{"summaryEvent": {"isPreview": true, "result": "succeeded"}}', '{"cancelEvent": {}}']
_BEGAN = [*_PREVIEWED, '{"preludeEvent": {"config": {}}}', '{"cancelEvent": {}}']


@pytest.mark.parametrize(
    ("events", "line"),
    [
        pytest.param(_PREVIEWED, "Nothing was changed; the reason is above.", id="not agreed"),
        pytest.param([_PREVIEWED[0].replace("succeeded", "failed"), _PREVIEWED[1]], "pulumi up failed", id="preview"),
        pytest.param(_BEGAN, "pulumi up failed", id="update"),
        pytest.param([_PREVIEWED[1]], "pulumi up failed", id="no preview"),
        pytest.param([], "pulumi up failed", id="no event"),
    ],
)
def test_who_does_not_agree_to_an_up_hears_that_nothing_was_changed_and_of_no_failure(
    events: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said").write_text("".join(f"{event}\n" for event in events), encoding="utf-8")
    program = tmp_path / "pulumi"
    script = f"""#!/bin/sh
while [ "$1" != --event-log ]; do shift; done
cat {tmp_path}/said > "$2"
exit 1
"""
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(OperationError, match=f"^{re.escape(line)}"):
        pulumi(target, "up")


def _asking(folder: Path, kubeconfig: str, line: str) -> Target:
    """A stack whose `pulumi` tells the folder's state.json, and notes in `asked` what else it is asked and told."""
    script = f"""#!/bin/sh
case "$1" in
stack) cat {folder}/state.json ;;
*) echo "$@" {line} > {folder}/asked ;;
esac
"""
    program = folder / "pulumi"
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)
    settings = parse(changed(jetson(), "cluster.kubeconfig", kubeconfig))
    return Target("jetson", settings, folder, {"PATH": f"{folder}:/bin"}, ())


@pytest.mark.parametrize("adopted", [True, False])
def test_what_a_stack_adopted_is_given_back_by_the_program_whatever_the_settings_say_by_now(
    tmp_path: Path, config_path: str, monkeypatch: pytest.MonkeyPatch, *, adopted: bool
) -> None:
    annotations = {"kai-anywhere.io/before": "{}"} if adopted else {}
    namespace = {"kind": "Namespace", "metadata": {"name": "gpu-operator", "annotations": annotations}}
    resource = {
        "urn": "urn:pulumi:a::b::kai-anywhere:index:KaiAnywhere$c::d",
        "type": "kubernetes:core/v1:Namespace",
        "outputs": {"__inputs": namespace},
    }
    (tmp_path / "state.json").write_text(json.dumps({"deployment": {"resources": [resource]}}), encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    destroy(_asking(tmp_path, config_path, "$KAI_ANYWHERE_DESTROYS"))
    asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
    assert asked[:1] == ["destroy"]
    assert ("--run-program" in asked) is adopted
    assert asked[-1] == "true", "the program is told that it need not wait for a cluster that is not well"


def test_a_repair_tells_the_program_of_its_refresh_and_an_up_tells_of_none(
    tmp_path: Path, config_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"deployment": {"resources": []}}), encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = _asking(tmp_path, config_path, "refreshes=$KAI_ANYWHERE_REFRESHES")
    for run, refresh, line in ((repair, True, "refreshes=true"), (up, False, "refreshes=")):
        run(target)
        asked = (tmp_path / "asked").read_text(encoding="utf-8").split()
        assert asked[:1] == ["up"]
        assert ("--refresh" in asked) is refresh
        assert asked[-1] == line


_RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.mark.parametrize(
    ("kind", "operation", "refused"),
    [
        (_RELEASE, "creating", True),
        (_RELEASE, "updating", False),
        (_RELEASE, "deleting", False),
        # What configures a host: the state has what gives it back.
        ("command:remote:Command", "creating", False),
    ],
)
def test_what_a_killed_run_was_making_is_not_forgotten_by_down(  # noqa: PLR0913 - each says one thing
    tmp_path: Path, config_path: str, monkeypatch: pytest.MonkeyPatch, kind: str, operation: str, *, refused: bool
) -> None:
    release = {"urn": "urn:pulumi:a::b::c::gpu-operator", "type": kind}
    state = {"deployment": {"resources": [], "pending_operations": [{"resource": release, "type": operation}]}}
    (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    program, asked = tmp_path / "pulumi", tmp_path / "asked"
    program.write_text(f'#!/bin/sh\n[ "$1" = stack ] && exec cat {tmp_path}/state.json\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    settings = parse(changed(jetson(), "cluster.kubeconfig", config_path))

    def down(*simulated: str) -> None:
        destroy(Target("jetson", settings, tmp_path, {"PATH": f"{tmp_path}:/bin"}, simulated))

    if refused:
        with pytest.raises(OperationError, match="was making gpu-operator, or is at work") as caught:
            down()
        assert "kai-anywhere rollback --stack jetson" in str(caught.value)
        assert not asked.exists(), "nothing was changed"
        down("a simulator, of which nobody has anything")
    else:
        down()
    assert "destroy" in asked.read_text(encoding="utf-8")


def test_what_a_stack_tells_is_the_components_own_whatever_a_teams_project_makes_an_output() -> None:
    stack = {"type": "pulumi:pulumi:Stack", "outputs": {"kai_version": "the team's own word"}}
    component = {"type": "kai-anywhere:index:KaiAnywhere", "outputs": {"kai_version": "0.18.6"}}
    assert Checkpoint.model_validate({"resources": [stack, component]}).outputs == {"kai_version": "0.18.6"}
    assert Checkpoint.model_validate({"resources": [stack]}).outputs == {}
