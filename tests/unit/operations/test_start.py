"""What a command waits for before it begins: every shell completion starts the program too."""

import subprocess
import sys

from testbed.stacks import ROOT


def _printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_no_command_waits_for_the_libraries_of_the_program() -> None:
    code = (
        "import sys; from tests.support.command_tree import commands; print('fleet plan' in commands()); "
        "print([each for each in ('pulumi', 'grpc', 'pulumi_kubernetes', 'pulumi_command', 'pulumi_policy') "
        "if each in sys.modules])"
    )
    assert _printed(code) == "True\n[]\n"


def test_a_command_waits_for_its_own_room_alone() -> None:
    code = (
        "import sys; from operations.__main__ import app; app(['settings', '--help'], standalone_mode=False); "
        "print([each for each in sys.modules if each.startswith('operations.')])"
    )
    imported = _printed(code).splitlines()[-1]
    assert "'operations.settings.commands'" in imported
    for other in ("doctor", "lifecycle", "pull_request", "failures", "version"):
        assert f"operations.{other}" not in imported
