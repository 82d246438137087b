"""Where a command works: on the reader's own cluster, or on the simulator."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import simulator
import toolchain
from config.platform import TegraPlatform, X86Platform
from config.stack import StackSettings
from config.yaml_text import dump_yaml
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from manifests.wording import first_of
from operations import kai_programs
from operations.errors import OperationError
from operations.stack_file import (
    SIMULATED_MEMORY_MIB,
    check_endings,
    check_project,
    for_simulator,
    project_of,
    read_project,
    read_settings,
    read_stack_file,
    with_settings,
)
from toolchain.programs import KUBERNETES_PROVIDER, LANGUAGE_PYTHON, NO_PLUGIN_DOWNLOADS
from toolchain.progress import say

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = ROOT / "package"
_OPTIONS = "PULUMI_OPTION_"
PROJECT_LINK = ".project"
"""A link to the folder of a team's own project, whose stack files lie in this checkout: the action `setup` makes it."""


@dataclass(frozen=True)
class Target:
    """A stack and its place.

    Attributes:
        stack: the stack's name.
        settings: what it says, with the simulator's changes if there are any.
        project: the folder of its Pulumi.yaml.
        environment: of every program that is run for it.
        simulated: what stands in for the real thing, in words; empty on the reader's own cluster.
        runs_kai: whether that is a simulator with KAI's own programs.
    """

    stack: str
    settings: StackSettings
    project: Path
    environment: Mapping[str, str]
    simulated: tuple[str, ...]
    runs_kai: bool = False

    @property
    def folder(self) -> Path:
        """Where the program runs, in which a stack's relative paths begin; a simulator's project runs the checkout."""
        return ROOT if self.simulated else self.project

    @property
    def qualified_name(self) -> str:
        """The stack as project/name, as its field managers have it."""
        return f"{project_of(self.project)}/{self.stack}"


def folder(stack: str) -> Path:
    """The folder of a stack's simulator, with its data, state and project."""
    return ROOT / ".simulator" / stack


@contextmanager
def open_target(stack: str, *, start: bool = True, simulator_only: bool = False) -> Iterator[Target]:
    """The reader's own cluster if one is chosen, else the simulator.

    Args:
        stack: its name.
        start: whether the simulator is made where there is none yet.
        simulator_only: whether it is the simulator also where a cluster is chosen, by KUBECONFIG or by the settings.

    Raises:
        OperationError: if another command works on the same simulator, or there is none.
    """
    check_exported_options()
    settings = read_settings(ROOT / f"Pulumi.{stack}.yaml")
    if settings.hosts_alone and simulator_only:
        say(f"Stack '{stack}' prepares hosts alone: on the simulator, nothing is left of it.")
    if own_cluster(settings) and not simulator_only:
        project = own_project()
        environment = toolchain.environment(_programs(project))
        if chosen := own_kubeconfig():
            # Not every shell expands `make up KUBECONFIG=~/.kube/config`, and the Kubernetes provider does not either.
            # The program runs in the project's folder, where a relative path is another file, or none.
            environment["KUBECONFIG"] = os.pathsep.join(
                str(Path(os.path.expanduser(path)).absolute()) for path in chosen.split(os.pathsep) if path
            )
        yield Target(stack, settings, project, environment, ())
        return
    say(
        f"This is the simulator of stack '{stack}', as --simulator asks."
        if simulator_only
        else "No cluster is chosen (KUBECONFIG, or the settings' cluster.kubeconfig and cluster.context), "
        f"so this is the simulator of stack '{stack}'."
    )
    if not start and not (folder(stack) / "state").exists():
        raise OperationError(
            f"Stack '{stack}' has no simulator. If it is on a cluster of yours, name that before the same command: "
            "KUBECONFIG=~/.kube/config"
        )
    with alone(stack) as place:
        target = _simulated(stack, settings, place)
        try:
            yield target
        except KeyboardInterrupt:
            say(f"The simulator of stack '{stack}' runs on: `make down STACK={stack}` stops it.")
            raise


def check_exported_options() -> None:
    """Refuse to run pulumi with options that somebody has exported for work of his own; the stack is none of them.

    Pulumi takes each of its options from a variable too (3.259). With PULUMI_OPTION_PREVIEW_ONLY an `up` changes
    nothing, with PULUMI_OPTION_FILE an export prints nothing. Each command says its stack itself, which goes first.

    Raises:
        OperationError: if there are any.
    """
    exported = sorted(
        name for name, value in os.environ.items() if value and name.startswith(_OPTIONS) and name != f"{_OPTIONS}STACK"
    )
    if exported:
        raise OperationError(
            f"Pulumi would take options that this command does not give it: {first_of(exported)}. Nothing was changed."
            f"\nTake them away first: unset {' '.join(exported)}"
        )


@contextmanager
def alone(stack: str) -> Iterator[Path]:
    """The folder of a stack's simulator, which is made, with no other command at work in it.

    Raises:
        OperationError: if another command works there.
    """
    place = folder(stack)
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place / "command.lock", timeout=0):
            yield place
    except Timeout as error:
        raise OperationError(
            f"Another command works on the simulator of stack '{stack}'. Wait for it to end, or choose another STACK."
        ) from error


def own_project() -> Path:
    """The folder of the Pulumi.yaml that is run on a cluster of one's own: a team's, or this checkout's.

    Raises:
        OperationError: if the team's folder has none, or one that reads other stack files than those of the folder.
    """
    theirs = ROOT / PROJECT_LINK
    if not theirs.is_symlink():
        return ROOT
    place = Path(os.path.realpath(theirs))
    check_endings(place)
    if not (theirs / "Pulumi.yaml").is_file():
        raise OperationError(
            f"{theirs} leads to {theirs.readlink()}, which has no Pulumi.yaml. Let it lead to the folder of your "
            "project, or remove it."
        )
    check_project(theirs / "Pulumi.yaml")
    return place


def _programs(project: Path) -> tuple[toolchain.Program, ...]:
    """What the engine needs to run a project."""
    runtime = read_project(project / "Pulumi.yaml").get("runtime")
    # With options it is a mapping.
    runtime = runtime.get("name") if isinstance(runtime, dict) else runtime
    return (*toolchain.ENGINE, *toolchain.YAML) if runtime == "yaml" else toolchain.ENGINE


def own_cluster(settings: StackSettings) -> bool:
    """Whether the reader's own cluster is chosen: by KUBECONFIG, unless that is a simulator's, or in the settings.

    Hosts alone are always the reader's own: there is nothing of them to simulate.
    """
    return settings.hosts_alone or names_cluster(settings)


def names_cluster(settings: StackSettings) -> bool:
    """Whether somebody says which cluster: KUBECONFIG, unless that is a simulator's, or the settings."""
    return bool(own_kubeconfig() or settings.cluster.kubeconfig or settings.cluster.context)


def own_kubeconfig() -> str | None:
    """KUBECONFIG, unless it names a simulator's: whoever exported that for kubectl still means the simulator."""
    chosen = os.environ.get("KUBECONFIG")
    simulators = (ROOT / ".simulator").resolve()
    return None if chosen and Path(os.path.realpath(os.path.expanduser(chosen))).is_relative_to(simulators) else chosen


@dataclass(frozen=True)
class _SimulatedCluster:
    """What stands in for a stack's cluster; without one, nothing does.

    Attributes:
        programs: what it needs.
        settings: what the stack's say of it.
        simulated: what of it is not real, in words.
        kai_programs: where KAI's own programs are, if they run there.
    """

    programs: tuple[toolchain.Program, ...] = ()
    settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    simulated: tuple[str, ...] = ("Cluster: none, since the stack prepares hosts alone.",)
    kai_programs: str | None = None


def _simulated(stack: str, settings: StackSettings, place: Path) -> Target:
    cluster = _SimulatedCluster() if settings.hosts_alone else _start_cluster(settings, place)
    project = place / "project"
    state = place / "state"
    project.mkdir(exist_ok=True)
    state.mkdir(exist_ok=True)
    own = read_project(ROOT / "Pulumi.yaml")
    own["main"] = str(ROOT)
    own["runtime"] = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    own["plugins"] = _plugins()
    (project / "Pulumi.yaml").write_text(dump_yaml(own), encoding="utf-8")
    content = for_simulator(read_stack_file(ROOT / f"Pulumi.{stack}.yaml"))
    file = project / f"Pulumi.{stack}.yaml"
    file.write_text(dump_yaml(with_settings(content, cluster.settings) | _salt(file)), encoding="utf-8")
    environment = toolchain.environment((*toolchain.ENGINE, *cluster.programs)) | {
        # Without files of attributes, which a killed run may leave empty and the next one can't read.
        "PULUMI_BACKEND_URL": f"{state.as_uri()}?metadata=skip",
        # Nothing in a simulator is secret; a stack of one's own asks for a passphrase.
        "PULUMI_CONFIG_PASSPHRASE": "",
        # Pulumi.yaml names every plugin, and hosts, which pulumi-command is for, are not contacted here.
        **NO_PLUGIN_DOWNLOADS,
    }
    simulated = cluster.simulated
    if settings.hosts:
        hosts = ", ".join(sorted(settings.hosts))
        memory = f"GPU memory that they would be asked for is {SIMULATED_MEMORY_MIB} MiB"
        simulated += (f"Hosts: {hosts} are not contacted, and {memory}; give KUBECONFIG to prepare them.",)
    runs_kai = cluster.kai_programs is not None
    return Target(stack, read_settings(file), project, environment, simulated, runs_kai=runs_kai)


def _salt(file: Path) -> dict[str, Any]:
    """What pulumi has added to a simulator's stack file; nothing where a full disk left a part of that file."""
    try:
        previous = read_stack_file(file) if file.exists() else {}
    except OperationError:
        return {}
    return {"encryptionsalt": previous["encryptionsalt"]} if "encryptionsalt" in previous else {}


def _start_cluster(settings: StackSettings, place: Path) -> _SimulatedCluster:
    charts = {
        "kai": _chart(settings.kai.chart.source, KAI_SCHEDULER),
        "gpu_operator": _chart(settings.gpu_operator.chart.source, GPU_OPERATOR),
    }
    cluster = place / "cluster"
    toolchain.install((*toolchain.ENGINE, *toolchain.SIMULATOR))
    programs = kai_programs.choose(settings, simulator.status(cluster), official_chart=charts["kai"] is None)
    control_plane = simulator.up(cluster, nodes=_nodes(settings), kai_programs=programs)
    running = simulator.status(control_plane.folder).kai_programs
    changes: dict[str, dict[str, Any]] = {
        section: {"chart": {"source": str(path)}} for section, path in charts.items() if path is not None
    }
    changes["cluster"] = {"kubeconfig": str(control_plane.kubeconfig)}
    simulated = [simulator.simulated(running)]
    stand_ins = [pin.name for pin, path in zip((KAI_SCHEDULER, GPU_OPERATOR), charts.values(), strict=True) if path]
    if stand_ins:
        simulated.append(
            f"Charts: {' and '.join(stand_ins)} {'is a stand-in' if len(stand_ins) == 1 else 'are stand-ins'} of ours "
            "with the official value paths, since what is official can't be reached from here."
        )
    return _SimulatedCluster(toolchain.SIMULATOR, changes, tuple(simulated), running)


def _plugins() -> dict[str, list[dict[str, str]]]:
    """Where the engine's plugins are: it warns at every run of those that it has to look for on PATH."""
    programs = toolchain.install(toolchain.ENGINE)
    language, provider = LANGUAGE_PYTHON, KUBERNETES_PROVIDER
    return {
        "languages": [{"name": "python", "path": str(programs[language].parent)}],
        "providers": [
            {"name": "kubernetes", "path": str(programs[provider].parent)},
            {"name": "kai-anywhere", "path": str(_PACKAGE)},
        ],
    }


def _nodes(settings: StackSettings) -> dict[str, simulator.NodeKind]:
    """The nodes that the stack names, so that a stack of one's own can be tried."""
    nodes = {node: simulator.NodeKind.X86 for profile in settings.node_profiles.values() for node in profile.nodes}
    nodes |= dict.fromkeys(settings.platform.unified_memory_nodes, simulator.NodeKind.SPARK)
    match settings.platform:
        case TegraPlatform(tegra_nodes=tegra):
            nodes |= dict.fromkeys(tegra, simulator.NodeKind.JETSON)
        case X86Platform():
            pass
    return nodes


def _chart(source: str | None, pin: ChartPin) -> Path | None:
    """The stand-in for an official chart that can't be reached, or None where the stack's own source is used."""
    if source is not None:
        return None
    official = pin.source.replace("oci://", "https://")
    return None if toolchain.reachable(official) else simulator.chart_path(pin.name)
