"""Puts texts of others into GitHub's markdown, so that they are shown and never read as markdown, HTML or mentions.

Inside code nothing is interpreted, and GitHub makes no mention, link or issue reference of it. So whatever is not
written here goes into code, and the only thing left to defend is the code's own end.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SUBSTITUTE = "\N{REPLACEMENT CHARACTER}"
# Control, format (bidirectional overrides hide what a text says), surrogate, private use; line, paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_TICKS = re.compile("`+")
_RESERVE = 120
"""Bytes kept for the line that says how much is left out."""


def visible(text: str) -> str:
    """The text with everything replaced that a reader can't see; line ends and tabs stay."""
    text = text.replace("\r\n", "\n").replace("\t", "    ")
    return "".join(_seen(c) for c in text)


def _seen(character: str) -> str:
    if character == "\n":
        return character
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    return _SUBSTITUTE if category in _UNSEEN else character


def clipped(text: str, length: int) -> str:
    """At most so many characters; what is cut is told."""
    if len(text) <= length:
        return text
    suffix = f" [{len(text) - length} more characters]"
    return text[:length] + suffix


def code(text: str, *, length: int = 300) -> str:
    """A text of others within a line."""
    flat = " ".join(visible(clipped(text, length)).split()) or " "
    ticks = "`" * (_longest_run(flat) + 1)
    padding = " " if len(ticks) > 1 or flat != flat.strip() else ""
    return f"{ticks}{padding}{flat}{padding}{ticks}"


def block(text: str, *, language: str = "", length: int = 3000) -> str:
    """A text of others over several lines."""
    shown = visible(clipped(text, length))
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n"


def folded(summary: str, content: str, *, length: int = 300) -> str:
    """A part that opens when it is clicked; the summary is a text of others, the content is markdown."""
    flat = " ".join(visible(clipped(summary, length)).split())
    return f"<details><summary><code>{html.escape(flat)}</code></summary>\n\n{content}\n</details>\n"


@dataclass(frozen=True)
class Section:
    """A heading with blocks of markdown, of which as many are shown as fit.

    Attributes:
        title: markdown of ours.
        blocks: most important first.
        most_bytes: what the section may take of the whole text.
    """

    title: str
    blocks: Sequence[str]
    most_bytes: int


def composed(head: str, sections: Iterable[Section], foot: str, *, limit: int) -> str:
    """Head, sections and foot within `limit` bytes of UTF-8; sections that come first take first."""
    left = limit - _size(head) - _size(foot)
    parts = [head]
    for section in sections:
        if not section.blocks:
            continue
        title = f"\n#### {section.title}\n\n"
        room = min(left, section.most_bytes) - _size(title) - _RESERVE
        if room <= 0:
            continue
        shown = []
        for content in section.blocks:
            room -= _size(content)
            if room < 0:
                break
            shown.append(content)
        if len(shown) < len(section.blocks):
            shown.append(f"\n_{len(section.blocks) - len(shown)} more are in the log of the run._\n")
        parts += [title, *shown]
        left -= _size(title) + sum(map(_size, shown))
    return "".join([*parts, foot])


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)


def _size(text: str) -> int:
    return len(text.encode())
