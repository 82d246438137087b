"""Messages: names, paths and known words; every other text is hidden, since the engine drops secret marks."""

from typing import Any

import pytest

from policy.findings import HIDDEN, Told, Violation, finding, show, told_image, told_name, told_path, told_version
from policy.reading import Hole
from policy.vocabulary import is_known
from tests.policy.adversarial import BAD, Case
from tests.policy.objects import Json, findings

_SECRET = "pa$$ w0rd!"
_NAMES = frozenset({"name", "namespace", "kind", "apiVersion"})
"""Keys of names: a message tells which object it is about."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (80.0, "80"),
        (None, "nothing"),
        ("", "an empty string"),
        ("SYS_ADMIN", "SYS_ADMIN"),
        ("cap_sys_admin", "cap_sys_admin"),
        ("kernel.msgmax", "kernel.msgmax"),
        ("Unconfined", "Unconfined"),
        ("hunter2", HIDDEN),
        (["get", "hunter2"], f"[get, {HIDDEN}]"),
        ({"path": "hunter2", "hunter2": 1}, "an object with path, 1 more"),
        ({}, "an empty object"),
        (Hole.UNKNOWN, "unknown until the update runs"),
        (Told("written by the rule"), "written by the rule"),
        (told_image("registry.example.com:5000/app:1.0"), "registry.example.com:5000/app:1.0"),
        (told_image("user:hunter2@registry.example.com/app"), HIDDEN),
        (told_path("/var/run/docker.sock"), "/var/run/docker.sock"),
        (told_path("/proc/$(hunter2)"), HIDDEN),
        (told_name("gpu-1"), "gpu-1"),
        (told_name("Hunter 2"), HIDDEN),
        (told_name("0123456789abcdef0123456789abcdef"), HIDDEN),
        (told_version(">=1.x"), ">=1.x"),
        (told_version("hunter2"), HIDDEN),
        (told_version(None), "nothing"),
    ],
)
def test_a_value_is_shown_or_hidden(value: object, shown: str) -> None:
    assert show(value) == shown


def test_no_name_and_no_key_writes_a_line_of_its_own() -> None:
    forged = 'x\n  rule:   nothing\r\x1b[2Kx"'
    result = finding("privileged", f"Pod{forged}", forged, Violation(("data", forged), True, "why", "remedy"))
    assert len(result.message().splitlines()) == 5
    assert result.message().isprintable() is False
    assert "\x1b" not in result.message()


def test_a_very_long_name_is_cut() -> None:
    result = finding("privileged", "Pod", "x" * 10_000, Violation(("data", "y" * 10_000), True, "why", "remedy"))
    assert len(result.message()) < 1_000


def _with_secrets(value: object, key: str = "") -> object:
    """Every text that is neither a name nor a known word, with a secret behind it."""
    match value:
        case dict():
            return {key: _with_secrets(inner, key) for key, inner in value.items()}
        case list():
            return [_with_secrets(inner, key) for inner in value]
        case str() if key not in _NAMES and not is_known(value):
            return f"{value} {_SECRET}"
        case _:
            return value


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.what)
def test_no_message_of_the_corpus_shows_a_text(case: Case) -> None:
    props: Any = _with_secrets(case.props)
    assert isinstance(props, dict)
    for stack in (case.props, props):
        messages = [finding.message() for finding in findings(case.token, _as_json(stack))]
        assert not [message for message in messages if _SECRET in message]


def _as_json(value: object) -> Json:
    assert isinstance(value, dict)
    return value
