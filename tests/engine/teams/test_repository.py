"""A repository that `kai-anywhere init` wrote, committed, cloned and used: docs/teams.md and docs/upgrade.md."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
import toolchain
from manifests.versions import KAI_SCHEDULER
from operations.init.choices import Way, checked
from operations.init.files import TEMPLATES, contents, write
from operations.version import project_version
from testbed.engine import without_logs
from testbed.hosts import command_plugin
from testbed.simulated import stack_settings
from testbed.stacks import ROOT
from tests.support.checkout import shell
from tests.support.docs import blocks, command
from tests.support.git_server import HOST, git_server
from tests.support.releases import ADDRESS, NEW_LABEL, NEWER, OLDER, git, instead, released
from tests.support.wheels import from_wheels
from toolchain.programs import (
    KUBERNETES_PROVIDER,
    KUBERNETES_PROVIDER_VERSION,
    LANGUAGE_PYTHON,
    LANGUAGE_YAML,
    PACKAGE_HOST,
)

STACK = "prod"
INSTALL = (
    "test -d .venv || python -m venv .venv\n.venv/bin/python -m pip install --quiet --requirement requirements.txt\n"
)
"""What `pulumi install` does for a program in Python. The language host that is built here (3.78) is not told the
folder of the environment, and would make it in the project's own; later ones are."""


@dataclass(frozen=True)
class Team:
    """A team with a clone of its repository.

    Attributes:
        clone: where they type.
        environment: of their shell.
    """

    clone: Path
    environment: dict[str, str]

    def types(self, script: str) -> str:
        """Run commands as typed; `pulumi install` and the answer to `pulumi up` have their stand-ins."""
        answered = re.sub(r"(?m)^pulumi (up|destroy)", r"pulumi \1 --yes", script.replace("pulumi install\n", INSTALL))
        return shell(answered, self.clone, self.environment)

    def changes_one_line(self, diff: str) -> None:
        """Make the change that a page shows."""
        [(old, new)] = re.findall(r"^-(.*)\n\+(.*)\n$", diff)
        [file] = [
            file for file in self.clone.iterdir() if file.is_file() and old in file.read_text("utf-8").splitlines()
        ]
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        assert git(self.clone, "diff", "--shortstat") == " 1 file changed, 1 insertion(+), 1 deletion(-)\n"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's repository with two versions."""
    return released(tmp_path_factory.mktemp("product") / "kai-anywhere")


@pytest.fixture
def team(tmp_path: Path, cluster: simulator.ControlPlane) -> Callable[[Way, str, Mapping[str, str]], Team]:
    """Make a team that has committed what `init` wrote, with settings for the simulator, and cloned it."""

    def make(way: Way, repository: str, environment: Mapping[str, str]) -> Team:
        said = {"stack": STACK, "platform": "tegra", "distribution": "k3s", "way": way, "repository": repository}
        origin = tmp_path / "origin"
        write(origin, contents(checked(**said, version=OLDER)))
        file = origin / f"Pulumi.{STACK}.yaml"
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        key = "kai-anywhere:settings"
        content["config"][key] = stack_settings(content["config"][key], cluster)
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        git(origin, "init", "--quiet", "--initial-branch=main")
        git(origin, "add", "--all")
        git(origin, "commit", "--quiet", "--message", "GPU sharing on our clusters")
        git(tmp_path, "clone", "--quiet", str(origin), "clone")
        clone = tmp_path / "clone"
        git(clone, "config", "user.name", "team")
        git(clone, "config", "user.email", "team@example.com")
        return Team(clone, _environment(tmp_path, way) | dict(environment))

    return make


def _environment(folder: Path, way: Way) -> dict[str, str]:
    """That of somebody who has pulumi and nothing of ours: the environment of the team's own clone comes first."""
    programs = toolchain.ENGINE if way is Way.PROGRAM else (*toolchain.ENGINE, *toolchain.YAML)
    path = toolchain.environment(programs)["PATH"]
    (folder / "state").mkdir()
    return {
        "PATH": f"{folder / 'clone' / '.venv' / 'bin'}:{path}",
        "PULUMI_BACKEND_URL": f"{(folder / 'state').as_uri()}?metadata=skip",
        "PULUMI_CONFIG_PASSPHRASE": "",
        **from_wheels(),
        # The component is a plugin, which is fetched from the Git server.
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def _upgrade(way: Way) -> tuple[str, str, str]:
    """What docs/upgrade.md tells those who took this way: the line, the commands until the preview, those after it."""
    page = ROOT / "docs" / "upgrade.md"
    lines = [block.text for block in blocks(page, "diff")]
    scripts = [block.text for block in blocks(page, "bash") if block.first_line.startswith("git switch --create")]
    number = [Way.COMPONENT, Way.PROGRAM].index(way)
    return lines[number], scripts[number], command("upgrade.md", 'git commit --all --message "kai-anywhere 1.2.4"')


def _lives(team: Team, way: Way, api: httpx2.Client) -> None:
    """Install, upgrade by one line that a preview shows, and remove."""
    first = command("teams.md", "cd clusters")
    try:
        assert re.search(r"\+ \d+ to create", team.types(first.replace("cd clusters\n", "")))
        git(team.clone, "commit", "--quiet", "--all", "--message", "The stack")
        _is_upgraded(team, way, api)
    finally:
        team.types(f"pulumi destroy --stack {STACK}")


def _version_in_the_fleet(team: Team) -> str:
    """What the table of all sites has of this one."""
    printed = team.types(f"{ROOT / 'bin' / 'kai-anywhere'} fleet status {STACK} --folder . --json 2>/dev/null")
    [site] = json.loads(printed)["sites"]
    assert site["kai"] == KAI_SCHEDULER.version.removeprefix("v"), "which no template makes an output of the stack"
    return str(site["version"])


def _is_upgraded(team: Team, way: Way, api: httpx2.Client) -> None:
    assert re.search(r"\+ \d+ created", team.types(f"pulumi up --stack {STACK}"))
    assert api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]["kai-anywhere.io/platform"] == "tegra"
    namespace = "/api/v1/namespaces/kai-scheduler"
    assert NEW_LABEL not in api.get(namespace).json()["metadata"]["labels"]
    assert _version_in_the_fleet(team) == OLDER
    same = team.types(f"pulumi preview --stack {STACK}")
    assert "unchanged" in same
    assert "to update" not in same

    line, until, after = _upgrade(way)
    team.changes_one_line(line)
    shown = team.types(until.replace("pulumi preview", "pulumi preview --diff"))
    assert re.search(r"~ \d+ to update", shown)
    assert not re.search(r"\d+ to replace|(?m:^\s*-+\s*kubernetes:)", shown), "an upgrade uninstalls nothing"
    assert re.search(rf'{re.escape(NEW_LABEL)}"?\s*: "newer"', shown)
    assert NEW_LABEL not in api.get(namespace).json()["metadata"]["labels"], "a preview changes nothing"
    team.types(after)
    assert api.get(namespace).json()["metadata"]["labels"][NEW_LABEL] == "newer"
    assert _version_in_the_fleet(team) == NEWER
    assert git(team.clone, "status", "--porcelain") == "", "nothing is left that a team would have to commit or ignore"
    _goes_back(team, way, api)


def _goes_back(team: Team, way: Way, api: httpx2.Client) -> None:
    git(team.clone, "revert", "--no-edit", "HEAD")
    if way is Way.PROGRAM:
        assert "to update" not in team.types(f"pulumi preview --stack {STACK}"), "the environment is taken as it is"
        team.types("pulumi install\n")
    team.types(f"pulumi up --stack {STACK}")
    assert NEW_LABEL not in api.get("/api/v1/namespaces/kai-scheduler").json()["metadata"]["labels"]


def test_the_program_by_version_is_installed_and_upgraded_by_one_line(
    team: Callable[[Way, str, Mapping[str, str]], Team], product: Path, api: httpx2.Client
) -> None:
    own = team(Way.PROGRAM, ADDRESS, instead(product))
    own.types("pulumi install\n")
    where = own.types("cd /\npython -c 'import components; print(components.__file__)'").strip()
    assert where.startswith(str(own.clone / ".venv")), "nothing of this checkout is used"
    _lives(own, Way.PROGRAM, api)


def test_the_component_by_version_is_installed_and_upgraded_by_one_line(
    team: Callable[[Way, str, Mapping[str, str]], Team], product: Path, api: httpx2.Client, tmp_path: Path
) -> None:
    with git_server(tmp_path / "server") as server:
        (server.folder / "example").mkdir()
        git(product, "clone", "--quiet", "--bare", ".", str(server.folder / "example" / "kai-anywhere.git"))
        environment = _fetching(tmp_path)
        plugins = Path(environment["PULUMI_HOME"]) / "plugins"
        _for_the_built_yaml_host(plugins, product)
        own = team(Way.COMPONENT, f"https://{HOST}/example/kai-anywhere", environment | server.variables)
        _lives(own, Way.COMPONENT, api)
        assert HOST in server.asked
    for version in (OLDER, NEWER):
        fetched = plugins / f"resource-{HOST}_example_kai-anywhere.git_package-{version}" / "package" / "venv"
        assert fetched.is_dir(), "each version was fetched and has an environment of its own"
        assert not fetched.is_symlink()


def _for_the_built_yaml_host(plugins: Path, product: Path) -> None:
    """Lay both versions where a YAML host with an older engine inside (1.25 has 3.206) looks for their schema.

    The engine fetches and installs each version as everywhere; that host would do so once more, in half a minute.
    """
    yaml_host = LANGUAGE_YAML
    if toolchain.install_located([yaml_host])[yaml_host].origin is not toolchain.Origin.BUILT:
        return
    for version in (OLDER, NEWER):
        folder = plugins / f"resource-{HOST}_example_kai-anywhere.git-{version}"
        git(product, "clone", "--quiet", "--branch", version, ".", str(folder))
        (folder / "package" / "venv").symlink_to(sys.prefix)


def _fetching(folder: Path) -> dict[str, str]:
    """For an engine that fetches packages: a home with the plugins that theirs need, and a host that starts them."""
    plugins = without_logs(folder / "home") / "plugins"
    command_plugin.install(plugins / "resource-command-v1.2.1")
    kubernetes = plugins / f"resource-kubernetes-v{KUBERNETES_PROVIDER_VERSION}"
    kubernetes.mkdir()
    [provider] = toolchain.install([KUBERNETES_PROVIDER]).values()
    (kubernetes / provider.name).symlink_to(provider)
    path = toolchain.environment((*toolchain.ENGINE, *toolchain.YAML))["PATH"]
    python = LANGUAGE_PYTHON
    if toolchain.install_located([python])[python].origin is toolchain.Origin.BUILT:
        host = folder / "host" / python.name
        host.parent.mkdir()
        host.symlink_to(toolchain.install(toolchain.PACKAGES)[PACKAGE_HOST])
        path = f"{host.parent}:{path}"
    return {"PATH": path, "PULUMI_HOME": str(folder / "home")}


@pytest.mark.parametrize("way", list(Way))
def test_pulumi_new_makes_the_same(way: Way, tmp_path: Path) -> None:
    own, new = tmp_path / "own", tmp_path / "new"
    chosen = {"stack": "jetson", "platform": "tegra", "distribution": "k3s", "way": way, "repository": ADDRESS}
    write(own, contents(checked(**chosen, version=f"v{project_version()}")))
    new.mkdir()
    script = command("teams.md", f"pulumi new {ADDRESS}/templates/component")
    script = script.replace(f"{ADDRESS}/templates/component", str(TEMPLATES / way))
    assert shell(f"{script.rstrip()} --generate-only --yes", new, _environment(tmp_path, way))
    files = {file.relative_to(new): file.read_text("utf-8") for file in new.rglob("*") if file.is_file()}
    del files[Path("Pulumi.x86.yaml")]
    project = yaml.safe_load(files.pop(Path("Pulumi.yaml")))
    assert project.pop("config").keys() == {"pulumi:tags"}, "pulumi notes where it comes from"
    written = {file.relative_to(own): file.read_text("utf-8") for file in own.rglob("*") if file.is_file()}
    assert project == yaml.safe_load(written.pop(Path("Pulumi.yaml")))
    assert files == written
