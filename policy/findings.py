"""What a rule found, and the message that a person reads."""

import re
from dataclasses import dataclass

from policy.reading import Hole, Path, render

_LONGEST = 80
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_TOKEN_LIKE = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")

HIDDEN = "(hidden)"
"""Found value where it may be a secret: the engine tells a pack no longer which values are secret."""


@dataclass(frozen=True)
class Violation:
    """One thing that a rule forbids.

    Attributes:
        path: of the field, from the resource's inputs.
        found: its value; HIDDEN where it may be a secret.
        why: what it would allow; the rule's own reason if empty.
        remedy: what to do; the rule's own if empty.
    """

    path: Path
    found: object
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """A violation with everything that its reader needs.

    Attributes:
        rule: the rule's name.
        kind: of the object.
        name: of the object, with its namespace.
        path: of the field, from the resource's inputs.
        found: its value, fit to be shown.
        why: what it would allow.
        remedy: what to do.
    """

    rule: str
    kind: str
    name: str
    path: str
    found: str
    why: str
    remedy: str

    def message(self) -> str:
        """The text of the violation."""
        return (
            f"{self.kind} {self.name}: {self.path}\n"
            f"  found:  {self.found}\n"
            f"  rule:   {self.rule}\n"
            f"  why:    {self.why}\n"
            f"  remedy: {self.remedy}"
        )


def finding(rule: str, kind: str, name: str, violation: Violation) -> Finding:
    """The finding of a violation whose `why` and `remedy` are set."""
    return Finding(
        rule=rule,
        kind=kind or "object",
        name=name or "(without a name)",
        path=render(violation.path),
        found=show(violation.found),
        why=violation.why,
        remedy=violation.remedy,
    )


def show(value: object) -> str:
    """A value for a message: short, and without what may be a credential."""
    match value:
        case str():
            text = _show_text(value)
        case dict():
            text = _cut("an object with " + ", ".join(map(_show_text, value)) if value else "an empty object")
        case list():
            text = _cut("[" + ", ".join(map(show, value)) + "]")
        case Hole():
            text = value.value
        case float():
            text = f"{value:g}"
        case _:
            text = "nothing" if value is None else str(value).lower()
    return text


def _show_text(text: str) -> str:
    text = _CREDENTIALS.sub("...@", text)
    if _TOKEN_LIKE.search(_DIGEST.sub("", text)) and not text.startswith("/"):
        return HIDDEN
    return _cut(text) if text else "an empty string"


def _cut(text: str) -> str:
    # An image keeps its digest: that is what is looked at.
    return text if len(text) <= _LONGEST or _DIGEST.search(text) else text[: _LONGEST - 3] + "..."
