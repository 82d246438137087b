"""What a rule found, and the message that a person reads.

The engine tells a pack no longer which values are secret. So a message shows names, paths and a closed vocabulary;
every other text is hidden, however harmless it looks.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from policy.reading import Hole, Path, render
from policy.vocabulary import is_known

_LONGEST = 80
_LONGEST_NAME = 253
_IMAGE = re.compile(r"[\w.-]+(?::\d{1,5})?(?:/[\w.-]+)*(?::[\w.-]{1,128})?(?:@sha256:[0-9a-f]{64})?", re.ASCII)
_FILE_PATH = re.compile(r"[\w.@+-]*(?:/[\w.@+-]*)*", re.ASCII)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_VERSIONS = re.compile(r"[v^~<>=! ]{0,4}\d{0,4}(?:\.(?:\d{1,4}|[x*])){0,3}")
_RANDOM = re.compile(r"[A-Za-z0-9_-]{32,}")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_CONTROL = re.compile(r"[^\x20-\x7e]")

HIDDEN = "(hidden: it may be a secret)"
"""Shown in place of a text that is none of the known words."""


class Told(NamedTuple):
    """A text that a message may show: written by the rule itself, or of a kind that is no secret."""

    text: str


def told_image(value: object) -> object:
    """An image's name; text that is none, such as an address with a password, stays hidden."""
    return _if_it_fits(value, _IMAGE)


def told_path(value: object) -> object:
    """A path on a host or in a volume."""
    return _if_it_fits(value, _FILE_PATH)


def told_name(value: object) -> object:
    """A Kubernetes object's name."""
    return _if_it_fits(value, _NAME)


def told_version(value: object) -> object:
    """A version, or a range of versions."""
    return _if_it_fits(value, _VERSIONS)


def _if_it_fits(value: object, shape: re.Pattern[str]) -> object:
    fits = isinstance(value, str) and shape.fullmatch(value) and not _RANDOM.search(_DIGEST.sub("", value))
    return Told(str(value)) if fits else value


@dataclass(frozen=True)
class Violation:
    """One thing that a rule forbids.

    Attributes:
        path: of the field, from the resource's inputs.
        found: its value. Text is shown only if it is one of the known words; wrap other text that is fit to be shown.
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
        unknown_program: whether it is an image, command or manifest that the update alone will know.
    """

    rule: str
    kind: str
    name: str
    path: str
    found: str
    why: str
    remedy: str
    unknown_program: bool = False

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
        kind=_one_line(kind) or "object",
        name=_one_line(name) or "(without a name)",
        path=_one_line(render(violation.path)),
        found=show(violation.found),
        why=violation.why,
        remedy=violation.remedy,
    )


def show(value: object) -> str:
    """A value for a message: short, and without text that may be secret."""
    match value:
        case Told(text):
            shown = _cut(_one_line(text))
        case str():
            shown = (value if is_known(value) else HIDDEN) if value else "an empty string"
        case dict():
            keys = [key for key in value if is_known(key)]
            rest = [f"{len(value) - len(keys)} more"] * (len(keys) < len(value))
            shown = _cut(f"an object with {', '.join([*keys, *rest])}" if value else "an empty object")
        case list():
            shown = _cut("[" + ", ".join(map(show, value)) + "]")
        case Hole():
            shown = value.value
        case float():
            shown = f"{value:g}"
        case _:
            shown = "nothing" if value is None else str(value).lower()
    return shown


def _one_line(text: str) -> str:
    """Names and keys come from outside: none of them may write lines of its own into a message."""
    return _CONTROL.sub("?", text[:_LONGEST_NAME]) + ("..." if len(text) > _LONGEST_NAME else "")


def _cut(text: str) -> str:
    # An image keeps its digest: that is what is looked at.
    return text if len(text) <= _LONGEST or _DIGEST.search(text) else text[: _LONGEST - 3] + "..."
