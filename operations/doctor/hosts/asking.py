"""How hosts are asked: by the command provider, with the settings, secrets and pinned keys of `pulumi up`.

A small program of its own runs beside the stack, with a state that exists for as long as it runs, in a private folder,
its secrets encrypted with a passphrase that nobody keeps. The stack's own state is neither read nor changed.
"""

import asyncio
import base64
import shlex
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pulumi
from pulumi import automation
from pulumi_command import local, remote

from agents.host_zipapp import build
from components.hosts.commands import in_any_shell
from components.hosts.connection import command, custom_timeouts
from config.hosts import HostSettings
from config.stack import StackSettings
from manifests.hosts import host_plans
from operations.doctor.hosts.answer import HostLookError, HostReport, agent_error, read_examination

PARALLEL = 16
"""Hosts that are asked at once."""
_ATTEMPTS = 2
"""To connect: a person waits, and a host that restarts is worth a word."""
_ENDING_SECONDS = 10
_HERE = Path(__file__).parent
_NAME = "kai-anywhere-doctor"
_LONGEST = 300


def ask(settings: StackSettings, secrets: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, HostReport]:
    """Ask every host of a stack that is not gone; one that does not answer is reported with the reason.

    Args:
        settings: the stack's.
        secrets: what its hosts need, by name.
        environment: of pulumi and its provider.

    Raises:
        HostLookError: if pulumi itself can't be run.
    """
    plans = {node: plan for node, plan in host_plans(settings).items() if not settings.hosts[node].gone}
    answers: dict[str, tuple[str, float]] = {}
    troubles: dict[str, list[str]] = {}
    loops: list[asyncio.AbstractEventLoop] = []
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-doctor-") as folder:
        agent = base64.b64encode(build(Path(folder) / "kai-host.pyz").read_bytes()).decode()

        def program() -> None:
            loops.append(asyncio.get_event_loop())
            for node, plan in plans.items():
                asked = _command(node, _impatient(settings.hosts[node]), plan.library_folders, secrets, agent)
                asked.stdout.apply(partial(heard, node))

        def heard(node: str, text: str) -> None:
            answers[node] = text, time.time()

        def happened(event: automation.EngineEvent) -> None:
            diagnostic = event.diagnostic_event
            if diagnostic is not None and diagnostic.severity == "error" and diagnostic.urn:
                troubles.setdefault(diagnostic.urn.rsplit("::", 1)[-1], []).append(diagnostic.message)

        try:
            stack = automation.create_stack("look", _NAME, program, opts=_workspace(Path(folder), environment))
            stack.up(parallel=PARALLEL, continue_on_error=True, on_event=happened, suppress_progress=True)
        except automation.CommandError as error:
            if not answers and not any(node in troubles for node in plans):
                raise HostLookError(f"pulumi can't run the command provider: {_last_line(str(error))}") from None
        finally:
            _close(loops)
    return {node: _report(HostReport(plan), answers.get(node), troubles.get(node, [])) for node, plan in plans.items()}


def _close(loops: Sequence[asyncio.AbstractEventLoop]) -> None:
    """Close the loops of the program once they have ended.

    The Automation API (Pulumi SDK 3.272) does it for a program that ends well; where a resource fails, it goes on a
    moment longer than `up`, and leaves its loop open.
    """
    end = time.monotonic() + _ENDING_SECONDS
    for loop in loops:
        while loop.is_running() and time.monotonic() < end:
            time.sleep(0.05)
        if not loop.is_running():
            loop.close()


def _workspace(folder: Path, environment: Mapping[str, str]) -> automation.LocalWorkspaceOptions:
    state = folder / "state"
    state.mkdir()
    project = automation.ProjectSettings(
        _NAME, runtime="python", backend=automation.ProjectBackend(f"{state.as_uri()}?metadata=skip")
    )
    variables = {
        **environment,
        "PULUMI_BACKEND_URL": f"{state.as_uri()}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": uuid.uuid4().hex,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Somebody may have exported it for another stack, and pulumi refuses it beside a name behind the command.
        "PULUMI_OPTION_STACK": "",
        # No state is read again.
        "PULUMI_SKIP_CHECKPOINTS": "true",
        # A socket that nobody answers on ends every connection, and no agent is used.
        "SSH_AUTH_SOCK": "",
    }
    return automation.LocalWorkspaceOptions(
        work_dir=str(folder),
        project_settings=project,
        env_vars=variables,
        pulumi_command=automation.PulumiCommand(root=str(_installation(folder, environment))),
    )


def _installation(folder: Path, environment: Mapping[str, str]) -> Path:
    """A folder in which the Automation API finds the environment's own pulumi: it looks on PATH before that is set."""
    program = shutil.which("pulumi", path=environment.get("PATH"))
    if program is None:
        raise HostLookError("there is no pulumi on PATH")
    place = folder / "installation"
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "pulumi").symlink_to(program)
    return place


def _command(
    node: str, host: HostSettings, folders: Sequence[str], secrets: Mapping[str, str], agent: str
) -> remote.Command | local.Command:
    """Register the command that asks a host; its name is the node's."""
    seconds = host.timeouts.probe_seconds
    password = secrets.get(host.sudo_password_secret or "", "")
    return command(
        node,
        command_text(seconds, folders),
        pulumi.ResourceOptions(custom_timeouts=custom_timeouts(host, seconds=seconds)),
        ssh=host.ssh,
        secrets={name: pulumi.Output.secret(value) for name, value in secrets.items()},
        stdin=pulumi.Output.secret(f"{password}\n{agent}\n"),
    )


def _impatient(host: HostSettings) -> HostSettings:
    """The host with few attempts to connect."""
    if host.ssh is None:
        return host
    dial = host.ssh.dial.model_copy(update={"attempts": min(host.ssh.dial.attempts, _ATTEMPTS)})
    return host.model_copy(update={"ssh": host.ssh.model_copy(update={"dial": dial})})


def command_text(seconds: int, folders: Sequence[str]) -> str:
    """What a host's shell runs, without a secret."""
    options = [f"--timeout={seconds}", *(f"--libraries={folder}" for folder in folders)]
    words = ["python3", "-I", "-c", (_HERE / "in_memory.py").read_text(encoding="utf-8")]
    words += ["kai-host.pyz", "examine", *options]
    text = (_HERE / "look.sh").read_text(encoding="utf-8")
    text += f"as_root timeout -k 10 {seconds + 15} {shlex.join(words)}\n"
    return in_any_shell(text)


def _report(report: HostReport, answer: tuple[str, float] | None, troubles: Sequence[str]) -> HostReport:
    if answer is None:
        trouble = next((line for text in troubles if (line := _reason(text))), "it gave no answer in time")
        return HostReport(report.plan, trouble=trouble)
    try:
        text, heard_at = answer
        return HostReport(report.plan, read_examination(text), heard_at=heard_at)
    except HostLookError as error:
        return HostReport(report.plan, trouble=str(error))


def _reason(text: str) -> str:
    """The provider's own words, without the command, which it quotes, and with the last that the host said of it."""
    words, _, quoted = text.partition(': running "')
    said = quoted.partition('":\n')[2]
    if error := next((error for line in said.splitlines() if (error := agent_error(line))), ""):
        return error
    return ": ".join(part for part in (_last_line(words), _last_line(said)) if part)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-_LONGEST:] if lines else ""
