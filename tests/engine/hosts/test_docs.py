"""docs/hosts.md, done as its reader does it."""

import json
import subprocess
from pathlib import Path

import yaml

from testbed.hosts.machines import JETSON_MEMORY_MIB, content, jetson, with_sudo
from testbed.hosts.sshd import Machine, Sshd, needs_sshd
from testbed.hosts.stacks import HostsStack
from testbed.stacks import ROOT, Json, changed, parse
from testbed.stacks import jetson as jetson_stack
from tests.support.docs import blocks

_SETTINGS, _STORE, _UP, _RACK, *_RACK_COMMANDS = [
    block.text for block in blocks(ROOT / "docs" / "hosts.md") if block.language in {"bash", "yaml"}
]
_PASSWORD = "correct horse battery staple"


def test_the_page_has_the_settings_and_two_blocks_of_commands() -> None:
    assert parse(jetson_stack() | yaml.safe_load(_SETTINGS)).hosts.keys() == {"jetson-1"}
    assert [block.splitlines()[0].split(" <")[0] for block in (_STORE, _UP, *_RACK_COMMANDS)] == [
        "pulumi config set --secret lab-key",
        "pulumi preview",
        "pulumi stack init rack-1",
        "pulumi config set --stack rack-1 --secret lab-key",
        "pulumi stack output gpu_memory_mib --stack rack-1",
    ]
    rack = yaml.safe_load(_RACK)["config"]["kai-anywhere:settings"]
    assert parse(rack).hosts_alone
    assert rack["hosts"] == yaml.safe_load(_SETTINGS)["hosts"]


def _here(settings: Json, server: Sshd, machine: Machine) -> Json:
    """The page's settings for a machine of the test, in another mode than it has."""
    ssh = settings["hosts"]["jetson-1"]["ssh"]
    here = {"address": machine.address, "port": server.port, "user": server.user, "host_key": server.host_key}
    settings = changed(settings, "platform.container_runtime_mode", "csv")
    return changed(settings, "hosts.jetson-1.ssh", ssh | here)


def _run(script: str, stack: HostsStack, server: Sshd, folder: Path) -> str:
    """What a reader's shell prints, whose home has the key and the password that the page names."""
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "lab").write_text(server.private_key, encoding="utf-8")
    (home / ".sudo-password").write_text(f"{_PASSWORD}\n", encoding="utf-8")
    done = subprocess.run(
        ["bash", "-euc", script.replace("pulumi up", "pulumi up --yes")],
        cwd=stack.folder,
        env=stack.environment | {"HOME": str(home), "PULUMI_HOME": str(folder / "pulumi-home")},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert _PASSWORD not in done.stdout + done.stderr
    return done.stdout


@needs_sshd
def test_the_three_steps_prepare_a_host(shared_server: Sshd, tmp_path: Path) -> None:
    machine = with_sudo(jetson(shared_server), _PASSWORD)
    before = content(machine.root)
    # The cluster's part is in test_whole_stack.py.
    settings = changed(jetson_stack(), "installs", "hosts") | yaml.safe_load(_SETTINGS)
    stack = HostsStack(tmp_path / "stack", _here(settings, shared_server, machine), {})
    _run(f"pulumi stack select {stack.name}\n{_STORE}{_UP}", stack, shared_server, tmp_path)
    assert content(machine.root) != before


@needs_sshd
def test_a_stack_of_hosts_alone_is_made_as_the_page_says(shared_server: Sshd, tmp_path: Path) -> None:
    machine = with_sudo(jetson(shared_server), _PASSWORD)
    before = content(machine.root)
    stack = HostsStack(tmp_path / "stack", {}, {})
    key, rack = "kai-anywhere:settings", yaml.safe_load(_RACK)["config"]["kai-anywhere:settings"]
    file = stack.folder / "Pulumi.rack-1.yaml"
    file.write_text(yaml.safe_dump({"config": {key: _here(rack, shared_server, machine)}}), encoding="utf-8")
    printed = _run("".join(_RACK_COMMANDS), stack, shared_server, tmp_path)
    assert json.loads(printed[printed.rindex("{") :]) == {"jetson-1": JETSON_MEMORY_MIB - 2048}
    assert content(machine.root) != before


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/hosts.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
