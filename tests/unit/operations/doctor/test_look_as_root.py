"""Whether a host is looked at as root, by what its sudo says."""

import os
import subprocess
from pathlib import Path

import pytest

from testbed.stacks import ROOT

_LOOK = (ROOT / "operations" / "doctor" / "hosts" / "look.sh").read_text(encoding="utf-8")
_SUDO = """#!/bin/sh
[ "$1" = --version ] && {{ echo "{version}" >&2; exit; }}
[ "$2" = -n ] && exit 1
IFS= read -r password
{after}
shift 4
ROOT=1 exec "$@"
"""


@pytest.mark.parametrize(
    ("version", "after", "root"),
    [
        ("Sudo version 1.9.15p5", "", "1"),
        ("sudo-rs 0.2.7", "", "1"),
        ("sudo-rs 0.2.13", "", "1"),
        # It reads all that is there.
        ("sudo-rs 0.2.6", "cat >/dev/null", ""),
    ],
)
def test_the_agent_reaches_every_host_that_asks_for_a_password(
    tmp_path: Path, version: str, after: str, root: str
) -> None:
    for name, text in (("sudo", _SUDO.format(version=version, after=after)), ("id", "#!/bin/sh\necho 1000\n")):
        program = tmp_path / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o700)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{_LOOK}\nas_root sh -c 'echo \"[$ROOT]\"; cat'"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROOT": ""},
        input="geheim\nthe agent\n",
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"[{root}]\nthe agent\n"


@pytest.mark.parametrize("asks", [True, False])
def test_a_host_whose_sudo_finds_no_python_is_looked_at_without_root(tmp_path: Path, *, asks: bool) -> None:
    """As with Python in /usr/local/bin, which RHEL's `secure_path` lacks."""
    refuse = '[ "$2" = -n ] && exit 1' if asks else ""
    looks = "case $* in *python3*) exit 127 ;; esac"
    sudo = f'#!/bin/sh\n{refuse}\n{looks}\nwhile [ "$1" != timeout ]; do shift; done\nROOT=1 exec "$@"\n'
    for name, text in (("sudo", sudo), ("id", "#!/bin/sh\necho 1000\n")):
        program = tmp_path / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o700)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{_LOOK}\nas_root sh -c 'echo \"[$ROOT]\"; cat'"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROOT": ""},
        input="geheim\nthe agent\n",
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "[]\nthe agent\n"
