"""The command line. Whatever happens, stdout gets exactly one JSON object; everything else goes to stderr.

Exit status: 0 done, 1 failed (the object has `error`), 2 bad input, 3 drift (`check`) or something to take back
(`untouched`), 4 another stack's by now (`restore`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from agents.host import desired
from agents.host.change import configure, restore
from agents.host.change.journal import Journal
from agents.host.commands import Deadline, Tools
from agents.host.errors import BadInputError, HostError
from agents.host.look import examination, probe
from agents.host.root import Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_DRIFT = 3
_TOUCHED = 3
_ANOTHER_STACKS = 4
_DEFAULT_SECONDS = 600.0
_MOST_SECONDS = 86400.0
_STACK = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
"""What Pulumi allows as names of projects and stacks."""


class _Stopped(BaseException):
    """The process was told to end."""


class _Parser(argparse.ArgumentParser):
    # `override` is not in the standard library of the oldest Python.
    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override]
        raise BadInputError(f"{message}.", f"Usage: {self.format_usage().strip().partition('usage: ')[2]}")


def main(arguments: Sequence[str]) -> int:
    """Run one command and give the exit status."""
    answer: dict[str, Any] = {}
    try:
        with _signals():
            code = _run(arguments, answer)
    except HostError as error:
        code = _failed(answer, error)
    except _Stopped as stopped:
        code = _failed(answer, HostError(f"Stopped by {stopped}.", "Run it again, or `restore`: both go on from here."))
    except Exception as error:  # noqa: BLE001 - stdout owes its reader one object, whatever went wrong
        text = f"Unexpected {type(error).__name__}: {error}"
        code = _failed(answer, HostError(text, "Report it with the output of `probe`; `restore` takes changes back."))
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return code


def _run(arguments: Sequence[str], answer: dict[str, Any]) -> int:
    parser = _parser()
    if set(arguments) & {"-h", "--help"}:
        configure.say(parser.format_help())
        answer["help"] = parser.format_usage().strip()
        return 0
    options = parser.parse_args(list(arguments))
    root = Root(options.root)
    if not root.path("/").is_dir():
        raise BadInputError(f"--root {options.root} is not a folder.", "Name the folder that holds the host's tree.")
    tools = Tools(root, Deadline(options.timeout))
    command: Callable[[Tools, Any, dict[str, Any]], int] = options.command
    return command(tools, options, answer)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kai-host.pyz", description="Prepares this host for shared GPUs.", add_help=False)
    commands = parser.add_subparsers(
        metavar="probe|examine|configure|check|untouched|restore", required=True, dest="name", parser_class=_Parser
    )
    for name, command, text in (
        ("probe", _probe, "say what this host is"),
        ("examine", _examine, "say what is wrong with it"),
        ("configure", _configure, "bring it to the document on stdin"),
        ("check", _check, "say whether it is what the document on stdin says"),
        ("untouched", _untouched, "say whether there is nothing to take back; needs no rights"),
        ("restore", _restore, "take every change back"),
    ):
        subparser = commands.add_parser(name, help=text, add_help=False)
        subparser.set_defaults(command=command)
        subparser.add_argument("--root", default="/", metavar="DIR", help="a prepared folder instead of this machine")
        subparser.add_argument("--timeout", type=_seconds, default=_DEFAULT_SECONDS, metavar="SECONDS")
        if command in (_probe, _examine):
            subparser.add_argument("--libraries", action="append", default=[], metavar="DIR", help="look there too")
        if command in (_configure, _restore):
            subparser.add_argument("--stack", type=_stack, metavar="PROJECT/STACK", help="whose this host is")
        if command is _configure:
            subparser.add_argument("--dry-run", action="store_true", help="say what would change")
    return parser


def _stack(text: str) -> str:
    if not _STACK.fullmatch(text):
        raise ValueError(text)
    return text


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError(text)
    return seconds


def _probe(tools: Tools, options: argparse.Namespace, answer: dict[str, Any]) -> int:
    answer.update(probe.probe(tools, tuple(options.libraries)))
    return 0


def _examine(tools: Tools, options: argparse.Namespace, answer: dict[str, Any]) -> int:
    answer.update(examination.examine(tools, tuple(options.libraries)))
    return 0


def _configure(tools: Tools, options: argparse.Namespace, answer: dict[str, Any]) -> int:
    result = configure.Result()
    state = desired.parse(_stdin(tools.deadline))
    try:
        configure.configure(tools, state, result, dry_run=options.dry_run, stack=options.stack)
    finally:
        answer.update(result.answer())
    return 0


def _check(tools: Tools, _options: argparse.Namespace, answer: dict[str, Any]) -> int:
    result = configure.Result()
    state = desired.parse(_stdin(tools.deadline))
    try:
        configure.check(tools, state, result)
    finally:
        answer.update(result.answer())
    return _DRIFT if answer["changed"] else 0


def _untouched(tools: Tools, _options: argparse.Namespace, answer: dict[str, Any]) -> int:
    answer["untouched"] = Journal(tools.root).is_absent
    return 0 if answer["untouched"] else _TOUCHED


def _restore(tools: Tools, options: argparse.Namespace, answer: dict[str, Any]) -> int:
    restored = restore.Restored()
    try:
        restore.restore(tools, restored, stack=options.stack)
    finally:
        answer.update(restored.answer())
    return _ANOTHER_STACKS if restored.left_to else 0


def _failed(answer: dict[str, Any], error: HostError) -> int:
    answer["error"] = {"message": error.message, "remedy": error.remedy}
    configure.say(f"{error.message} {error.remedy}")
    return error.exit_code


def _stdin(deadline: Deadline) -> bytes:
    """Read the document; a caller that never closes its end must not hold the host's lock for ever."""
    content = b""
    descriptor = sys.stdin.fileno()
    while len(content) <= desired.MOST_BYTES:
        ready, _, _ = select.select([descriptor], [], [], deadline.left())
        if not ready:
            raise BadInputError(
                "No desired document came on stdin in time.", "Send it as JSON on stdin, then close it."
            )
        part = os.read(descriptor, 65536)
        if not part:
            break
        content += part
    return content


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Make the signals that end a process an exception, so that children and staged files are cleared away."""

    def stop(number: int, _frame: object) -> None:
        raise _Stopped(signal.Signals(number).name)

    former = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
