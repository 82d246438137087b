"""Runs the preview that is told of: with the policy pack, and with the engine's event log."""

import subprocess
from pathlib import Path

from operations.engine import not_made, watched
from operations.engine_events import EventLogError, Line, Record, parse_events, record_of
from operations.errors import OperationError
from operations.policy_check.configuration import PACK, configured
from operations.stack_file import raw_settings
from operations.target import Target

_TIMEOUT_SECONDS = 1800
_LOG = "events.jsonl"
_NO_SUCH_STACK = 6
"""Pulumi's exit status where the backend has no stack of the name (pkg/cmd/pulumi/cmd/exit_codes.go, 3.259)."""
_DRIFT = ("--refresh", "--expect-no-changes")


def preview(target: Target, folder: Path, *, refresh: bool = False) -> tuple[int, Record]:
    """Preview a stack, a person watching; gives pulumi's exit status and what the engine said.

    Args:
        target: the stack and its place.
        folder: gets the event log and the pack's configuration.
        refresh: ask the cluster for what changed outside of Pulumi, and take any change for a failure.

    Raises:
        OperationError: if the preview does not end, the backend has no such stack, or pulumi wrote no event log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / _LOG
    log.unlink(missing_ok=True)
    command = ["pulumi", "preview", *_stack_and_pack(target, folder)]
    command += ["--non-interactive", "--event-log", str(log.resolve()), *(_DRIFT if refresh else ())]
    # Unlocks --event-log.
    environment = dict(target.environment) | {"PULUMI_DEBUG_COMMANDS": "true"}
    try:
        status = watched(command, environment, timeout_seconds=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"pulumi preview timed out after {_TIMEOUT_SECONDS} s. Its output is above.") from error
    if not log.exists() and status == _NO_SUCH_STACK:
        raise not_made(target.stack)
    if not log.exists():
        raise OperationError(f"pulumi preview wrote no event log (status {status}); the reason is above.")
    return status, record_of(events(folder))


def events(folder: Path) -> tuple[Line, ...]:
    """What the engine said in the last preview; without its summary if the log is cut off, so as not complete.

    Raises:
        OperationError: if the log can't be read.
    """
    log = folder / _LOG
    try:
        read, cut_off = parse_events(log.read_text(encoding="utf-8").split("\n"))
    except EventLogError as error:
        raise OperationError(f"{log} can't be read: {error}") from error
    return tuple(event for event in read if not (cut_off and event.summary))


def analyze(target: Target, folder: Path) -> str | None:
    """Judge the remembered state; gives the objections, or None.

    Args:
        target: the stack and its place.
        folder: gets the pack's configuration.

    Raises:
        OperationError: if the engine does not end.
    """
    command = ["pulumi", "policy", "analyze", *_stack_and_pack(target, folder), "--color", "never"]
    try:
        done = subprocess.run(
            command,
            env=dict(target.environment),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"pulumi policy analyze timed out after {_TIMEOUT_SECONDS} s.") from error
    return done.stdout if done.returncode else None


def _stack_and_pack(target: Target, folder: Path) -> tuple[str, ...]:
    config = configured(PACK, raw_settings(target.project / f"Pulumi.{target.stack}.yaml"), folder)
    # An executable pack runs on every engine since 3.255, with the language host that is on PATH or without.
    pack = ("--policy-pack", str(PACK.executable), "--policy-pack-config", str(config.resolve()))
    return ("--stack", target.stack, "--cwd", str(target.project), *pack)
