"""What a command waits for before it begins: every shell completion starts the program too."""

import subprocess
import sys

import pytest

from testbed.stacks import ROOT


@pytest.mark.parametrize("library", ["pulumi", "grpc", "pulumi_kubernetes", "pulumi_command", "pulumi_policy"])
def test_no_command_waits_for_the_libraries_of_the_program(library: str) -> None:
    code = f"import sys, operations.__main__; print({library!r} in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
