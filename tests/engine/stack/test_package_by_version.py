"""The package by version from a Git repository, installed and started by the real engine, in three languages.

How a program in YAML takes the next version: tests/engine/teams/test_repository.py.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

import simulator
import toolchain
from operations.init.choices import Way, checked
from operations.init.files import contents
from package.version import VERSION
from testbed.engine import ASKS_NOBODY, Stack, without_logs
from testbed.hosts import command_plugin
from testbed.hosts.machines import JETSON_MEMORY_MIB, content, jetson
from testbed.hosts.sshd import needs_sshd, serving
from testbed.hosts.stacks import LOGIN_KEY, ssh_host, tegra_stack
from testbed.simulated import stack_settings
from testbed.stacks import ROOT
from tests.support.checkout import copy_tracked
from tests.support.docs import blocks, command
from tests.support.git_server import HOST, GitServer, git_server
from tests.support.many_nodes import MANY, ONE, add, with_nodes
from tests.support.wheels import from_wheels
from toolchain.programs import (
    KUBERNETES_PROVIDER,
    KUBERNETES_PROVIDER_VERSION,
    LANGUAGE_PYTHON,
    LANGUAGE_YAML,
    PACKAGE_HOST,
)

REPOSITORY = f"{HOST}/example/kai-anywhere"
PACKAGE = f"{REPOSITORY}/package"
_VERSION = "0.1.0"


@dataclass(frozen=True)
class Machine:
    """A machine without a checkout: Pulumi, its plugins' folder, and the way to the repository."""

    environment: dict[str, str]
    plugins: Path

    def pulumi(self, *arguments: str, folder: Path) -> str:
        """Run pulumi and give what it printed to stdout."""
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive"],
            cwd=folder,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def installed(self) -> Path:
        """Where the engine put the package."""
        return self.plugins / f"resource-{REPOSITORY.replace('/', '_')}.git_package-v{_VERSION}"


def _git(folder: Path, *arguments: str) -> None:
    author = ["-c", "user.name=Team", "-c", "user.email=team@example.com"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def _publish(server: GitServer, folder: Path) -> None:
    """This checkout as version 0.1.0, a tag of a repository."""
    copy_tracked(folder)
    _git(folder, "init", "--quiet")
    project = folder / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace(f'\nversion = "{VERSION}"', f'\nversion = "{_VERSION}"'), encoding="utf-8")
    _git(folder, "add", "--all", "--force")
    _git(folder, "commit", "--quiet", "--message", _VERSION)
    _git(folder, "tag", f"v{_VERSION}")
    (server.folder / "example").mkdir()
    _git(folder, "clone", "--quiet", "--bare", ".", str(server.folder / "example" / "kai-anywhere.git"))


def _python_host(folder: Path) -> list[str]:
    """What stands on PATH before a Python host that can't start packages."""
    python = LANGUAGE_PYTHON
    if toolchain.install_located([python])[python].origin is not toolchain.Origin.BUILT:
        return []
    folder.mkdir()
    (folder / python.name).symlink_to(toolchain.install(toolchain.PACKAGES)[PACKAGE_HOST])
    return [str(folder)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("by-version")
    environment = toolchain.environment((*toolchain.ENGINE, *toolchain.LANGUAGES))
    plugins = without_logs(folder / "home") / "plugins"
    # What the package needs besides: from Pulumi's servers, where they can be reached.
    command_plugin.install(plugins / "resource-command-v1.2.1")
    kubernetes = plugins / f"resource-kubernetes-v{KUBERNETES_PROVIDER_VERSION}"
    kubernetes.mkdir()
    [provider] = toolchain.install([KUBERNETES_PROVIDER]).values()
    (kubernetes / provider.name).symlink_to(provider)
    environment |= {
        "PATH": os.pathsep.join([*_python_host(folder / "host"), environment["PATH"]]),
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": folder.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE": "",
        **from_wheels(),
        **ASKS_NOBODY,
    }
    environment.pop("KUBECONFIG", None)
    with git_server(folder / "git") as server:
        _publish(server, folder / "repository")
        made = Machine(environment | server.variables, plugins)
        yield made
        assert HOST in server.asked


def _schema(machine: Machine, folder: Path) -> Any:  # noqa: ANN401 - JSON
    """Fetch and install the version, as `pulumi package add` does first."""
    printed = machine.pulumi("package", "get-schema", f"{PACKAGE}@v{_VERSION}", folder=folder)
    _for_the_built_yaml_host(machine)
    return json.loads(printed[printed.index("{") :])


def _for_the_built_yaml_host(machine: Machine) -> None:
    """Lay the plugin where a YAML host with an older engine inside (1.25 has 3.206) looks, which has a name of its own.

    It would fetch and install it there by itself, which takes a minute more.
    """
    source = machine.installed
    target = source.with_name(source.name.replace("_package-v", "-v"))
    yaml_host = LANGUAGE_YAML
    if toolchain.install_located([yaml_host])[yaml_host].origin is toolchain.Origin.BUILT and not target.exists():
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def test_a_version_is_fetched_and_has_an_environment_of_its_own(machine: Machine, tmp_path: Path) -> None:
    schema = _schema(machine, tmp_path)
    assert (schema["name"], schema["version"]) == ("kai-anywhere", _VERSION)
    assert schema["pluginDownloadURL"] == f"git://{PACKAGE}"
    component = schema["resources"]["kai-anywhere:index:KaiAnywhere"]
    assert component["inputProperties"].keys() == {"settings", "host_secrets"}
    python = machine.installed / "package" / "venv" / "bin" / "python"
    imported = subprocess.run(
        [python, "-c", "import pulumi, sys; print(pulumi.__file__.startswith(sys.prefix))"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert imported.stdout == "True\n"
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert "--hash=sha256:" in pins, "what pip installs is checked"


def _project() -> dict[str, Any]:
    project: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "yaml" / "Pulumi.yaml").read_text(encoding="utf-8"))
    options = project["resources"]["gpus"]["options"]
    project["resources"]["gpus"]["options"] = options | {"version": _VERSION, "pluginDownloadURL": f"git://{PACKAGE}"}
    return project


def test_a_program_in_python_has_the_types_of_the_version(
    machine: Machine, cluster: simulator.ControlPlane, tmp_path: Path
) -> None:
    project = {"name": "fleet", "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": "venv"}}}
    stack = Stack(tmp_path / "stack", {}, machine.environment, project=project)
    shutil.copy(ROOT / "examples" / "python" / "requirements.txt", stack.folder)
    program = stack.folder / "__main__.py"
    example = _on(cluster, (ROOT / "examples" / "python" / "__main__.py").read_text(encoding="utf-8"))
    program.write_text(example, encoding="utf-8")
    add = command("teams.md", "pulumi package add github.com/example/kai-anywhere/package@v1.2.3")
    assert add.strip().endswith("github.com/example/kai-anywhere/package@v1.2.3")
    machine.pulumi("package", "add", f"{PACKAGE}@v{_VERSION}", folder=stack.folder)
    said = yaml.safe_load((stack.folder / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert said["packages"] == {"kai-anywhere": f"{PACKAGE}@{_VERSION}"}
    assert stack.preview().changes["create"] > 20
    program.write_text(example.replace('"k3s"', '"k4s"'), encoding="utf-8")
    refused = stack.preview(expect=None)
    assert refused.code != 0
    assert "k4s" in refused.output

    stack.set_secret("key", "hunter-2")
    given = 'host_secrets={"lab-key": pulumi.Config().require_secret("key")},'
    program.write_text(example.replace("settings={", f"{given}\n    settings={{", 1), encoding="utf-8")
    refused = stack.preview(expect=None)
    assert refused.code != 0
    assert "host_secrets.lab-key is not read by anything: no host names a secret" in refused.output
    assert "hunter-2" not in refused.output


@needs_sshd
def test_a_repository_that_init_wrote_prepares_hosts_and_tells_their_memory_as_the_page_says(
    machine: Machine, tmp_path: Path
) -> None:
    _schema(machine, tmp_path)
    said = {"stack": "test", "platform": "tegra", "distribution": "k3s", "way": Way.COMPONENT}
    files = contents(checked(**said, repository=f"https://{REPOSITORY}", version=f"v{_VERSION}"))
    project = yaml.safe_load(files[PurePosixPath("Pulumi.yaml")])
    environment = machine.environment | {"XDG_DATA_HOME": str(tmp_path / "data")}
    with serving(tmp_path / "sshd") as server:
        host = jetson(server)
        before = content(host.root)
        stack = Stack(
            tmp_path / "stack", tegra_stack({"jetson-1": ssh_host(server, host)}), environment, project=project
        )
        stack.set_secret(LOGIN_KEY, server.private_key)
        stack.up()
        assert content(host.root) != before
        asked = command("hosts.md", "pulumi stack output gpu_memory_mib --stack rack-1").partition(" --stack")[0]
        assert json.loads(stack.run(*asked.split()[1:]).output) == {"jetson-1": JETSON_MEMORY_MIB - 2048}
        stack.destroy()
        assert content(host.root) == before


def _on(control_plane: simulator.ControlPlane, program: str) -> str:
    """An example's program, on a simulator; texts, maps and numbers are written alike in Python and TypeScript."""
    settings = stack_settings({"cluster": {}, "kai": {}, "gpu_operator": {}}, control_plane)
    for section, before, inside in (
        ("cluster", "", f'"kubeconfig": {settings["cluster"]["kubeconfig"]!r}, '),
        ("kai", f'"gpu_operator": {settings["gpu_operator"]!r}, ', f'"chart": {settings["kai"]["chart"]!r}, '),
    ):
        [said] = re.findall(rf'"?\b{section}"?: {{', program)
        program = program.replace(said, f"{before}{said}{inside}")
    return program


@pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js with npm is not installed here")
def test_a_program_in_typescript_makes_what_the_one_in_yaml_makes(
    machine: Machine, cluster: simulator.ControlPlane, tmp_path: Path
) -> None:
    example = ROOT / "examples" / "typescript"
    project = yaml.safe_load((example / "Pulumi.yaml").read_text(encoding="utf-8"))
    project["packages"] = {"kai-anywhere": f"{PACKAGE}@v{_VERSION}"}
    stack = Stack(tmp_path / "stack", {}, machine.environment, project=project)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(example / name, stack.folder)
    program = stack.folder / "index.ts"
    text = _on(cluster, (example / "index.ts").read_text(encoding="utf-8"))
    program.write_text(text.replace("28672", '"28 GB"'), encoding="utf-8")
    machine.pulumi("install", folder=stack.folder)
    assert (stack.folder / "package.json").read_bytes() == (example / "package.json").read_bytes()
    assert _hashes(stack.folder) == _hashes(example), "what npm installs is checked"
    refused = stack.preview(expect=None)
    assert refused.code != 0
    assert "Type 'string' is not assignable to type 'Input<number>'" in refused.output

    # More nodes than are a resource each: no program says which version of the package has that resource.
    add(cluster)
    settings = with_nodes(_guides_settings())
    nodes = '{ "jetson-1": { gpu_memory_mib: 28672 } }'
    assert nodes in text
    program.write_text(text.replace(nodes, json.dumps(settings["platform"]["tegra_nodes"])), encoding="utf-8")
    assert stack.up().changes["create"] > 20
    assert [resource["type"] for resource in stack.resources() if resource["type"] in {MANY, ONE}] == [MANY]
    _schema(machine, tmp_path)
    (stack.folder / "Pulumi.yaml").write_text(yaml.safe_dump(_project()), encoding="utf-8")
    settings = stack_settings(settings, cluster)
    del settings["kai"]["timeout_seconds"]
    stack.settings = settings
    assert set(stack.preview().changes) == {"same"}
    versions = {
        resource["inputs"]["version"]
        for resource in stack.resources()
        if resource["type"] == "pulumi:providers:kai-anywhere" and "version" in resource["inputs"]
    }
    assert versions == {_VERSION}
    stack.destroy()


def _hashes(folder: Path) -> list[str]:
    return re.findall(r'"integrity": "(.+)"', (folder / "package-lock.json").read_text(encoding="utf-8"))


def _guides_settings() -> dict[str, Any]:
    """What the examples say, as the guide has it in YAML."""
    texts = [block.text for block in blocks(ROOT / "docs" / "teams.md", "yaml")]
    [settings] = [
        content["resources"]["gpus"]["properties"]["settings"]
        for content in map(yaml.safe_load, texts)
        if "plugins" in content
    ]
    return dict(settings)
