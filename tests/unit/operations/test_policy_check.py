"""What `make policy` reads, writes and shows; the real engine is in tests/engine/policy/test_policy.py."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.engine_events import Finding
from operations.errors import OperationError
from operations.policy_check import PACK, Judged, Pack, guard, render
from operations.policy_check.configuration import configured
from operations.policy_check.guard import check_packs, prove
from operations.stack_file import raw_settings, stack_names
from operations.target import Target
from testbed.stacks import STACK_FILES, changed, jetson, parse


def _pack(folder: Path, script: str) -> Pack:
    (folder / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.1.0\n", encoding="utf-8")
    run = folder / "run"
    run.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    run.chmod(0o755)
    return Pack("kai-anywhere", run, PACK.canary)


def _refusal(pack: Pack, folder: Path) -> str:
    with pytest.raises(OperationError) as caught:
        prove(pack, folder / "none.json", os.environ, folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo broken >&2; exit 3", "ended where it must print its port"),
        ("echo hello", "said 'hello' where it must print its port"),
    ],
)
def test_a_pack_that_prints_no_port_is_refused_before_the_engine_waits_for_it(
    tmp_path: Path, script: str, says: str
) -> None:
    assert says in _refusal(_pack(tmp_path, script), tmp_path)


def test_a_pack_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operations.policy_check.guard.START_SECONDS", 1.0)
    assert "said nothing for 1 s" in _refusal(_pack(tmp_path, "exec sleep 1000"), tmp_path)


def test_a_pack_that_is_no_program_is_refused(tmp_path: Path) -> None:
    pack = _pack(tmp_path, "")
    pack.executable.chmod(0o644)
    assert "can't be started" in _refusal(pack, tmp_path)


def test_a_folder_without_a_version_is_no_pack(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="is no policy pack"):
        Pack("kai-anywhere", tmp_path / "run", PACK.canary).version()


def test_the_canary_of_exceptions_is_of_a_stack_with_an_operator_whoever_says_that_it_has_hosts_alone(
    tmp_path: Path,
) -> None:
    written = {"exceptions-in-use": {"installs": "hosts", "kai": {}, "stack": {"installs": "hosts", "gvirtus": {}}}}
    configuration = tmp_path / "config.json"
    configuration.write_text(json.dumps(written), encoding="utf-8")
    read = json.loads(
        guard._with_operator(configuration, "exceptions-in-use", {}, tmp_path).read_text(encoding="utf-8")
    )
    assert read["exceptions-in-use"] == {"kai": {}, "stack": {"gvirtus": {}}, "gpu_operator": {"install": True}}


def test_our_pack_says_its_version() -> None:
    assert PACK.version() == "0.1.0"


def test_the_configuration_is_the_stacks_own_for_each_policy(tmp_path: Path) -> None:
    written = json.loads(configured(PACK, jetson(), tmp_path).read_text(encoding="utf-8"))
    assert set(written) == {"privilege", "advice", "exceptions-in-use"}
    for settings in written.values():
        assert settings["platform"] == jetson()["platform"]
        assert set(settings) <= {"installs", "platform", "reservation", "gpu_operator", "kai"}, (
            "the pack takes no other section"
        )


def test_a_section_that_is_null_is_none_of_the_configuration(tmp_path: Path) -> None:
    """The engine refuses null where the pack's schema has an object."""
    written = configured(PACK, changed(jetson(), "gvirtus", None), tmp_path).read_text(encoding="utf-8")
    assert written == configured(PACK, jetson(), tmp_path).read_text(encoding="utf-8")


def test_a_configuration_that_was_asked_for_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('{"all": "disabled"}', encoding="utf-8")
    pack = Pack(PACK.name, PACK.executable, PACK.canary, file)
    assert configured(pack, jetson(), tmp_path).read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    file.write_text("{", encoding="utf-8")
    with pytest.raises(OperationError, match="is not JSON"):
        configured(pack, jetson(), tmp_path)


def test_stacks_and_their_settings_are_those_of_the_folders_files() -> None:
    assert stack_names(STACK_FILES) == ["jetson", "x86"]
    assert raw_settings(STACK_FILES / "Pulumi.jetson.yaml")["platform"]["kind"] == "tegra"


def test_a_check_makes_no_stack_in_a_persons_own_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.berlin.yaml").write_text(json.dumps({"config": {"kai-anywhere:settings": jetson()}}), "utf-8")
    program = tmp_path / "pulumi"
    program.write_text(
        f'#!/bin/sh\necho "$1" >> {tmp_path}/asked\necho "error: no stack named \'berlin\' found" >&2\nexit 6\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    target = Target("berlin", parse(jetson()), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    monkeypatch.setattr("operations.policy_check.commands.open_target", lambda *_, **__: nullcontext(target))
    monkeypatch.setattr("operations.policy_check.commands.engine.check_context", lambda _: None)
    monkeypatch.setattr("operations.policy_check.preview.prove", lambda *_: None)
    done = CliRunner().invoke(app, ["policy", "--stack", "berlin"])
    refusal = str(done.exception)
    assert refusal.startswith(
        "The backend has no stack 'berlin' yet, so there is no preview of it. Make it there, once: "
    )
    assert refusal.endswith(" Or take the simulator: --simulator.")
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "preview\n", "nothing made one"


@pytest.mark.parametrize(
    "packs", [{}, {"other": "0.1.0"}, {"kai-anywhere": "9.9.9"}, {"kai-anywhere": "0.1.0", "other": "1"}]
)
def test_exactly_our_pack_must_have_run(packs: dict[str, str]) -> None:
    check_packs(PACK, {"kai-anywhere": "0.1.0"})
    with pytest.raises(OperationError, match="did not run"):
        check_packs(PACK, packs)


def test_the_table_shows_each_policy_and_each_finding() -> None:
    finding = Finding(
        policy="privilege",
        pack="kai-anywhere",
        level="mandatory",
        message="Pod a: spec.containers[0].securityContext.privileged\n  found: [x]",
    )
    text = render([Judged("jetson", ("exceptions-in-use", "privilege"), 25, (finding,)), Judged("x86", (), 1, ())])
    rows = [line.split() for line in text.splitlines()]
    assert ["jetson", "exceptions-in-use", "25", "0"] in rows
    assert ["jetson", "privilege", "25", "1"] in rows
    assert "jetson: privilege (mandatory)\nPod a: spec.containers[0]" in text
    assert "found: [x]" in text
