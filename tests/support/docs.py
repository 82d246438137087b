"""The documentation's pages and their fenced blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

from testbed.stacks import ROOT

PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: what stands behind the fence, empty for none.
        text: its lines, without the indentation of a list.
    """

    language: str
    text: str

    @property
    def first_line(self) -> str:
        """Its name in tests."""
        return self.text.partition("\n")[0].strip()


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The blocks of a page in their order; those of one language, if it is given."""
    fenced = re.findall(r"(?ms)^( *)```(\w*)\n(.*?)^ *```$", page.read_text(encoding="utf-8"))
    result = [Block(name, re.sub(rf"(?m)^{indent}", "", text)) for indent, name, text in fenced]
    return [block for block in result if language in {None, block.language}]


def command(page: str, first_line: str) -> str:
    """The commands of the block of `docs/PAGE` that begins so.

    Raises:
        LookupError: if there is not exactly one.
    """
    texts = [block.text for block in blocks(ROOT / "docs" / page, "bash") if block.first_line == first_line]
    if len(texts) != 1:
        raise LookupError(f"docs/{page} has {len(texts)} blocks that begin with {first_line!r}, not one")
    return texts[0]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
