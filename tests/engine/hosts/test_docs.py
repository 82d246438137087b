"""docs/hosts.md, done as its reader does it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.hosts.machines import content, jetson, with_sudo
from testbed.hosts.sshd import Sshd, needs_sshd
from testbed.hosts.stacks import HostsStack
from testbed.stacks import ROOT, changed, parse
from testbed.stacks import jetson as jetson_stack

_PAGE = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
_SETTINGS, *_BLOCKS = [
    re.sub(r"(?m)^ {3}", "", block) for block in re.findall(r"(?ms)^ *```(?:bash|yaml)\n(.*?)^ *```$", _PAGE)
]
_PASSWORD = "correct horse battery staple"


def test_the_page_has_the_settings_and_two_blocks_of_commands() -> None:
    assert parse(jetson_stack() | yaml.safe_load(_SETTINGS)).hosts.keys() == {"jetson-1"}
    assert [block.splitlines()[0].split(" <")[0] for block in _BLOCKS] == [
        "pulumi config set --secret lab-key",
        "pulumi preview",
    ]


@pytest.mark.engine
@needs_sshd
def test_the_three_steps_prepare_a_host(shared_server: Sshd, tmp_path: Path) -> None:
    machine = with_sudo(jetson(shared_server), _PASSWORD)
    before = content(machine.root)
    settings = jetson_stack() | yaml.safe_load(_SETTINGS)
    settings["platform"]["container_runtime_mode"] = "csv"
    ssh = settings["hosts"]["jetson-1"]["ssh"]
    here = {"address": machine.address, "port": shared_server.port, "user": shared_server.user}
    settings = changed(settings, "hosts.jetson-1.ssh", ssh | here | {"host_key": shared_server.host_key})
    stack = HostsStack(tmp_path / "stack", settings, {})
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "lab").write_text(shared_server.private_key, encoding="utf-8")
    (home / ".sudo-password").write_text(f"{_PASSWORD}\n", encoding="utf-8")
    script = "".join(_BLOCKS).replace("pulumi up", "pulumi up --yes")
    done = subprocess.run(
        ["bash", "-euc", f"pulumi stack select {stack.name}\n{script}"],
        cwd=stack.folder,
        env=stack.environment | {"HOME": str(home), "PULUMI_HOME": str(tmp_path / "pulumi-home")},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(machine.root) != before
    assert _PASSWORD not in done.stdout + done.stderr


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/hosts.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
