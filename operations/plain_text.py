"""What a command shows as plain text: a console that writes nowhere, without colours, and changes no text.

A console obeys `[red]` and `:bed:` in what it prints, and an address such as `https://[fd00::bed:1]:6443` has both.
"""

import io
import sys

from rich.console import Console
from typing_extensions import override


class PlainText(Console):
    """A console of a width; `text` is what was printed on it."""

    def __init__(self, width: int) -> None:
        self._kept = io.StringIO()
        super().__init__(file=self._kept, width=width, color_system=None, highlight=False, markup=False, emoji=False)

    @property
    @override
    def encoding(self) -> str:
        """Where the text goes: tables have no lines that an older encoding lacks."""
        return str(getattr(sys.stdout, "encoding", None) or "utf-8").lower()

    @property
    def text(self) -> str:
        """Everything that was printed."""
        return self._kept.getvalue()
