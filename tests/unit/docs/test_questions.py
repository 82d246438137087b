"""Blocks that are pasted into a terminal: a question there would take the next line for its answer."""

import itertools
import re
from pathlib import Path

import pytest

from tests.support.docs import PAGES, blocks

_ASKS = re.compile(
    r"pulumi (?:"
    r"login(?!.* --non-interactive)"  # a first login asks what to do next
    r"|stack init(?!.* --secrets-provider)"  # a passphrase
    r"|(?:up|destroy|refresh|stack rm)(?!.* (?:--yes|--preview-only))"
    r"|config set --secret \S+$"
    r")"
    r"|kai-anywhere rollback(?!.* --yes)"
    r"|make (?:up|down|repair|rollback) KUBECONFIG="
)


def _swallowed(text: str) -> list[str]:
    """The lines that a question before them would take."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [after for line, after in itertools.pairwise(lines) if _ASKS.search(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_question_takes_the_next_line_of_a_pasted_block(page: Path) -> None:
    for block in blocks(page, "bash"):
        assert _swallowed(block.text) == [], "put it into a block of its own, or join both by &&"


@pytest.mark.parametrize(
    ("text", "swallowed"),
    [
        ("pulumi login --local\npulumi stack init jetson\n", ["pulumi stack init jetson"]),
        ("pulumi login --local --non-interactive\npulumi stack init jetson\n", []),
        ("pulumi stack init jetson\npulumi up\n", ["pulumi up"]),
        ("pulumi stack init jetson && pulumi up\n", []),
        ("pulumi stack init jetson \\\n  --secrets-provider awskms://key\npulumi up\n", []),
        ("kai-anywhere rollback\npulumi up\n", ["pulumi up"]),
    ],
)
def test_what_a_question_takes_is_known(text: str, swallowed: list[str]) -> None:
    assert _swallowed(text) == swallowed
