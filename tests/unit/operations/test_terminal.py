"""Commands at a terminal: Ctrl-C ends each with a sentence and status 130, and leaves nothing running."""

import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from operations.exit_status import ExitStatus
from testbed.shared_gpus import fleet, pages
from testbed.stacks import ROOT, STACK_FILES
from tests.support.api_server import ApiServer, kubeconfig, make_healthy, write_kubeconfig
from tests.support.terminal import CTRL_C, terminal

_GOES_ON = "Interrupted. The same command goes on from what is there."
_IN_CHECKOUT = """
import os, pathlib
from operations import reading, target
reading.ROOT = target.ROOT = pathlib.Path(os.environ["CHECKOUT"])
from operations.__main__ import main
main()
"""
"""The command, with the stack files of another checkout: those of this one are their user's."""
_PULUMI = """#!/bin/sh
case "$*" in
version) echo v3.260.0;;
"stack export"*) echo '{"deployment": {}}';;
"stack select"*) ;;
*) trap 'sleep 1; echo released the stack; exit 255' INT; echo "pulumi $*"; while :; do sleep 0.1; done;;
esac
"""
_LOGGED_OUT = """#!/bin/sh
[ "$*" = version ] && echo v3.260.0 && exit
echo PULUMI_ACCESS_TOKEN must be set for login >&2
exit 255
"""


_HAS_SOMETHING = """#!/bin/sh
case "$*" in
version) echo v3.260.0;;
"stack export"*) echo '{"deployment": {"resources": [{"urn": "a::b", "type": "pulumi:pulumi:Stack"}]}}';;
"stack select"*) ;;
*) echo "pulumi $*" | tee -a "$HOME/asked";;
esac
"""


@pytest.fixture
def environment(api: ApiServer, config_path: str, tmp_path: Path) -> dict[str, str]:
    """The variables of somebody whose cluster has a Jetson, with a script in place of Pulumi."""
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: kai-anywhere\n", encoding="utf-8")
    make_healthy(api)
    for path, items in fleet(2).items():
        api.pages(path, dict(pages(items, 3)))
    programs = tmp_path / "bin"
    programs.mkdir()
    others = ("pulumi-language-python", "pulumi-language-python-exec", "pulumi-resource-kubernetes")
    for name in ("pulumi", *others):
        (programs / name).write_text(_PULUMI, encoding="utf-8")
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KAI_ANYWHERE_CACHE": str(tmp_path / "cache"),
        "KUBECONFIG": config_path,
        "CHECKOUT": str(tmp_path),
    }


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _IN_CHECKOUT, *arguments]


@pytest.mark.parametrize("command", ["up", "preview", "down", "repair", "review"])
def test_pulumi_ends_by_itself_after_ctrl_c_and_the_sentence_comes_after_it(
    environment: dict[str, str], command: str, tmp_path: Path
) -> None:
    options = ["--out", str(tmp_path / "review")] if command == "review" else []
    with terminal(_command(command, *options), environment, folder=ROOT) as at:
        at.until(
            f"pulumi {'preview' if command in {'preview', 'review'} else 'destroy' if command == 'down' else 'up'}"
        )
        at.press(CTRL_C)
        assert at.status() == ExitStatus.INTERRUPTED
        assert at.left() == []
    assert at.lines[-3:] == ["^Creleased the stack", _GOES_ON, ""]
    assert "Traceback" not in at.shown


@pytest.mark.parametrize("answer", ["y", "n", CTRL_C])
def test_down_asks_after_a_preview_and_without_a_yes_nothing_goes(
    environment: dict[str, str], answer: str, tmp_path: Path
) -> None:
    (tmp_path / "bin" / "pulumi").write_text(_HAS_SOMETHING, encoding="utf-8")
    with terminal(_command("down"), environment, folder=ROOT) as at:
        at.asked("Destroy all of this? [y/N]:")
        at.press(answer if answer == CTRL_C else f"{answer}\r")
        status = at.status()
    preview, *runs = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "destroy --stack jetson --refresh --preview-only" in preview
    assert [("--yes" in run, "--preview-only" in run) for run in runs] == ([(True, False)] if answer == "y" else [])
    ends = {"y": ExitStatus.WELL, "n": ExitStatus.COULD_NOT_RUN, CTRL_C: ExitStatus.INTERRUPTED}
    assert status == ends[answer]
    assert ("Nothing was changed." in at.shown) is (answer == "n")
    assert "Traceback" not in at.shown


@pytest.mark.parametrize("passphrase", ["kept", ""])
def test_down_asks_once_for_a_passphrase_that_nothing_says(
    environment: dict[str, str], tmp_path: Path, passphrase: str
) -> None:
    noting = _HAS_SOMETHING.replace("pulumi $*", "pulumi $* with $PULUMI_CONFIG_PASSPHRASE")
    (tmp_path / "bin" / "pulumi").write_text(noting, encoding="utf-8")
    with (tmp_path / "Pulumi.jetson.yaml").open("a", encoding="utf-8") as file:
        file.write("\nencryptionsalt: v1:x\n")
    with terminal(_command("down"), environment, folder=ROOT) as at:
        at.asked("Passphrase of the stack's secrets:")
        at.press(f"{passphrase}\r")
        at.asked("Destroy all of this? [y/N]:")
        at.press("y\r")
        assert at.status() == ExitStatus.WELL
    runs = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert [run.rpartition(" with ")[2] for run in runs] == [passphrase] * 2


def test_down_asks_nobody_who_has_agreed_already(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "pulumi").write_text(_HAS_SOMETHING, encoding="utf-8")
    with terminal(_command("down"), environment | {"PULUMI_SKIP_CONFIRMATIONS": "true"}, folder=ROOT) as at:
        assert at.status() == ExitStatus.WELL
    assert "Destroy all of this?" not in at.shown
    [run] = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "--preview-only" not in run


@pytest.mark.parametrize(
    ("options", "shows"),
    [(["--watch"], "2 nodes, 2 with GPUs"), (["--serve"], "Ctrl-C ends it"), (["--watch", "--json"], '"free_mib"')],
    ids=["watch", "serve", "json"],
)
def test_ctrl_c_is_how_a_person_ends_what_has_no_other_end(
    environment: dict[str, str], options: list[str], shows: str
) -> None:
    with terminal(_command("status", *options), environment, folder=ROOT) as at:
        at.until(shows)
        at.press(CTRL_C)
        assert at.status() == ExitStatus.WELL
        assert at.left() == []
    assert "Traceback" not in at.shown
    assert "Interrupted" not in at.shown


def test_a_terminal_that_draws_nothing_anew_gets_a_line_per_change(environment: dict[str, str]) -> None:
    with terminal(_command("status", "--watch"), environment | {"TERM": "dumb"}, folder=ROOT) as at:
        at.until("2 nodes, 2 with GPUs")
        at.press(CTRL_C)
        assert at.status() == ExitStatus.WELL
    assert "\x1b" not in at.shown


@pytest.mark.parametrize("command", ["bundle", "status", "verify", "preflight"])
def test_ctrl_c_while_the_cluster_is_silent_ends_a_reading_command(
    environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent_config = write_kubeconfig(tmp_path / "silent", kubeconfig(address))
        with terminal(_command(command), environment | {"KUBECONFIG": silent_config}, folder=ROOT) as at:
            silent.settimeout(60)
            asking, _ = silent.accept()
            at.press(CTRL_C)
            assert at.status() == ExitStatus.INTERRUPTED
            assert at.left() == []
            asking.close()
    assert at.lines[-2:] == [f"^C{_GOES_ON}", ""]


def test_ctrl_c_before_the_command_has_begun_is_no_traceback(environment: dict[str, str]) -> None:
    shown = environment | {"PYTHONPROFILEIMPORTTIME": "1"}
    with terminal([ROOT / "bin" / "kai-anywhere", "reset", "--stack", "never-started"], shown, folder=ROOT) as at:
        at.until("httpx2")
        at.press(CTRL_C)
        assert at.status() == ExitStatus.INTERRUPTED
    assert "Traceback" not in at.shown
    assert "never started" not in at.shown


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    ignoring = f"trap '' INT; exec {ROOT}/bin/kai-anywhere reset --stack never-started"
    with terminal(["/bin/sh", "-c", ignoring], dict(os.environ) | {"PYTHONPROFILEIMPORTTIME": "1"}, folder=ROOT) as at:
        at.until("httpx2")
        at.press(CTRL_C)
        assert at.status() == ExitStatus.WELL
    assert "was never started" in at.shown


@pytest.mark.parametrize("command", ["up", "preview", "down", "repair", "preflight", "review", "drift", "policy"])
def test_a_missing_kubeconfig_is_told_before_anybody_is_asked_to_log_in(
    environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    (tmp_path / "bin" / "pulumi").write_text(_LOGGED_OUT, encoding="utf-8")
    options = ["--out", str(tmp_path / "review")] if command in {"review", "drift"} else []
    options += ["--stack", "jetson"] if command == "policy" else []
    missing = environment | {"KUBECONFIG": str(tmp_path / "missing")}
    with terminal(_command(command, *options), missing, folder=ROOT) as at:
        assert at.status() == ExitStatus.COULD_NOT_RUN
    assert f"No kubeconfig at {tmp_path / 'missing'}." in at.shown
    assert "login" not in at.shown
    assert "Traceback" not in at.shown


@pytest.mark.parametrize("command", ["down", "drift"])
def test_who_chose_no_cluster_hears_that_the_simulator_is_meant(
    command: str, environment: dict[str, str], tmp_path: Path
) -> None:
    without = {name: value for name, value in environment.items() if name != "KUBECONFIG"}
    options = ["--out", str(tmp_path / "review")] if command == "drift" else []
    with terminal(_command(command, *options), without, folder=ROOT) as at:
        assert at.status() == ExitStatus.COULD_NOT_RUN
    first, second, *_ = " ".join(at.lines).split(". ")
    assert first.startswith("No cluster is chosen (KUBECONFIG, or the settings' cluster.kubeconfig")
    assert first.endswith("so this is the simulator of stack 'jetson'")
    assert second == "Stack 'jetson' has no simulator"
