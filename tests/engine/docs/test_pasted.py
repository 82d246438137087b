"""Blocks of the README that are pasted into a terminal: every command of them runs, and no question takes one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.engine.docs.test_readme import BLOCKS
from tests.support.checkout import fresh
from tests.support.terminal import Terminal, terminal

_PASSPHRASE = "kept to oneself"
_PROMPT = "ready> "


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    with fresh(tmp_path / "kai-anywhere") as folder:
        yield folder


@pytest.fixture
def shell(checkout: Path, tmp_path: Path) -> Iterator[Terminal]:
    """A person's shell in the checkout, on a machine that never ran pulumi."""
    kept = {key: os.environ[key] for key in ("PATH", "KAI_ANYWHERE_CACHE", "XDG_CACHE_HOME") if key in os.environ}
    # The programs that this machine has already; all else is below a home of its own.
    kept.setdefault("KAI_ANYWHERE_CACHE", str(Path("~/.cache/kai-anywhere").expanduser()))
    home = tmp_path / "home"
    home.mkdir()
    # Pulumi asks the system for the home, whatever HOME says.
    environment = kept | {
        "PULUMI_HOME": str(home / ".pulumi"),
        "HOME": str(home),
        "PS1": _PROMPT,
        "BASH_SILENCE_DEPRECATION_WARNING": "1",
    }
    with terminal(["bash", "--norc", "--noprofile", "-i"], environment, folder=checkout) as opened:
        opened.until(_PROMPT)
        yield opened


def _answer(shell: Terminal, question: str, answer: str) -> None:
    shell.until(question)
    shell.press(f"{answer}\r")


def _runs(shell: Terminal, command: str) -> None:
    """Type a command once the shell asks for one: pulumi asks the terminal for its colours, and takes what is typed."""
    shell.shown = ""
    shell.press(f"{command}\r")
    shell.until(_PROMPT)
    shell.shown = ""
    shell.press("echo status-$?-end\r")
    shell.until("status-0-end")
    shell.until(_PROMPT)


def test_the_readmes_block_opens_the_stack_and_asks_for_nothing_but_the_passphrase(
    shell: Terminal, checkout: Path, tmp_path: Path
) -> None:
    before = yaml.safe_load((checkout / "Pulumi.jetson.yaml").read_text(encoding="utf-8"))
    state = tmp_path / "state"
    state.mkdir()
    # `--local` is short for a folder in the home of the user, which a test leaves alone.
    pasted = BLOCKS[2].replace("login --local", f"login {state.as_uri()}")
    assert pasted != BLOCKS[2]
    shell.press(pasted)
    _answer(shell, "Enter your passphrase to protect config/secrets", _PASSPHRASE)
    shell.until("Re-enter your passphrase to confirm")
    asked, shell.shown = shell.shown, ""
    shell.press(f"{_PASSPHRASE}\r")
    shell.until(_PROMPT)
    shown = asked + shell.shown
    _runs(shell, "pulumi stack ls")
    assert "Logged in to" in shown
    assert _PASSPHRASE not in shown
    assert (state / ".pulumi" / "stacks" / "kai-anywhere" / "jetson.json").is_file()
    file = yaml.safe_load((checkout / "Pulumi.jetson.yaml").read_text(encoding="utf-8"))
    assert file.pop("encryptionsalt").startswith("v1:")
    assert file == before

    # One key by itself, as the page of settings says it, asks for nothing.
    _runs(shell, "pulumi config set --path 'kai-anywhere:settings.kai.namespace' kai-elsewhere")
    _runs(shell, "kai-anywhere settings explain kai.namespace")
    changed = yaml.safe_load((checkout / "Pulumi.jetson.yaml").read_text(encoding="utf-8"))
    assert changed["config"]["kai-anywhere:settings"]["kai"]["namespace"] == "kai-elsewhere"
    del changed["config"]["kai-anywhere:settings"]["kai"]["namespace"], changed["encryptionsalt"]
    before["config"]["kai-anywhere:settings"]["kai"].pop("namespace", None)
    assert changed == before
