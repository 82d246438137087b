"""The whole stack from a program in YAML: the package of a checkout on the real engine, as docs/teams.md has it."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import simulator
import toolchain
from config.cluster import Distribution
from testbed.engine import Stack
from testbed.inventory import connect, inventory
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, changed
from testbed.waiting import eventually
from tests.support.docs import blocks, command
from tests.support.many_nodes import MANY, NODES, ONE, add, with_nodes


def _project(control_plane: simulator.ControlPlane) -> Any:  # noqa: ANN401 - YAML
    """The guide's program on a checkout, here on a simulator."""
    page = ROOT / "docs" / "teams.md"
    [text] = [block.text for block in blocks(page, "yaml") if "path: ../kai-anywhere/package" in block.text]
    project = yaml.safe_load(text)
    [plugin] = project["plugins"]["providers"]
    plugin["path"] = str(ROOT / "package")
    properties = project["resources"]["gpus"]["properties"]
    properties["settings"] = stack_settings(properties["settings"], control_plane)
    return project


@pytest.fixture
def stack(tmp_path: Path, cluster: simulator.ControlPlane) -> Stack:
    environment = toolchain.environment((*toolchain.ENGINE, *toolchain.YAML))
    return Stack(tmp_path / "stack", {}, environment, project=_project(cluster))


def _rewrite(stack: Stack, settings: Json) -> None:
    file = stack.folder / "Pulumi.yaml"
    project = yaml.safe_load(file.read_text(encoding="utf-8"))
    project["resources"]["gpus"]["properties"]["settings"] = settings
    file.write_text(yaml.safe_dump(project), encoding="utf-8")


def _add_the_teams_namespace(stack: Stack, control_plane: simulator.ControlPlane) -> None:
    """Let the program make a namespace of its own, which the component is to use."""
    file = stack.folder / "Pulumi.yaml"
    project = yaml.safe_load(file.read_text(encoding="utf-8"))
    project["resources"] |= {
        "k8s": {"type": "pulumi:providers:kubernetes", "properties": {"kubeconfig": str(control_plane.kubeconfig)}},
        "ours": {
            "type": "kubernetes:core/v1:Namespace",
            "properties": {"metadata": {"name": "gpu-operator", "labels": {"team": "ours"}}},
            "options": {"provider": "${k8s}"},
        },
    }
    project["resources"]["gpus"]["options"] = {"dependsOn": ["${ours}"]}
    file.write_text(yaml.safe_dump(project), encoding="utf-8")


def _is_not_moved_without_an_alias(stack: Stack) -> None:
    """Put the component below another resource of the program, as if below a component of its own."""
    file = stack.folder / "Pulumi.yaml"
    before = file.read_text(encoding="utf-8")
    project = yaml.safe_load(before)
    options = project["resources"]["gpus"]["options"]
    options["parent"] = "${k8s}"
    file.write_text(yaml.safe_dump(project), encoding="utf-8")
    refused = stack.preview(expect=None)
    assert refused.code != 0
    [alias] = set(re.findall(r"aliases: \['(.+)'\]", refused.output))
    options["aliases"] = [alias]
    file.write_text(yaml.safe_dump(project), encoding="utf-8")
    assert stack.preview().changes.keys() <= {"same", "update"}
    file.write_text(before, encoding="utf-8")


def _takes_the_component_out(stack: Stack) -> None:
    """What docs/teams.md says, with this stack's name."""
    said = command("teams.md", "pulumi destroy --run-program --target-dependents \\")
    said = said.replace("\\\n", "").replace(":prod:", ":test:")
    stack.run(*shlex.split(said)[1:], "--yes", "--skip-preview")


def test_a_program_in_yaml_installs_the_stack_with_many_nodes_and_removes_it(
    stack: Stack, cluster: simulator.ControlPlane
) -> None:
    add(cluster)
    with connect(cluster) as api:
        before = inventory(api)
        settings = yaml.safe_load((stack.folder / "Pulumi.yaml").read_text(encoding="utf-8"))
        settings = settings["resources"]["gpus"]["properties"]["settings"]
        _rewrite(stack, changed(settings, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 28))
        assert "28 looks like GB" in stack.up(expect=1).output
        _rewrite(stack, changed(settings, "cluster.distribution", "k4s"))
        assert ", ".join(f'"{distribution}"' for distribution in Distribution) in stack.up(expect=1).output
        assert inventory(api) == before

        _add_the_teams_namespace(stack, cluster)
        _rewrite(stack, with_nodes(settings))
        refused = stack.up(expect=None)
        assert refused.code != 0
        assert "'gpu-operator' exists already and is not this stack's" in refused.output
        _rewrite(stack, changed(with_nodes(settings), "cluster.adopt", ["Namespace/gpu-operator"]))
        assert stack.up().changes["create"] > 20
        assert [resource["type"] for resource in stack.resources() if resource["type"] in {MANY, ONE}] == [MANY]
        labels = api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]
        assert labels["nvidia.com/gpu.memory"] == "28672"
        assert labels["kai-anywhere.io/platform"] == "tegra"
        labels = api.get(f"/api/v1/nodes/{NODES[-1]}").json()["metadata"]["labels"]
        assert labels["nvidia.com/gpu.memory"] == str(28672 + len(NODES) - 1)
        outputs = yaml.safe_load(stack.run("stack", "output", "--json").output)
        assert outputs["platform"] == "tegra"
        assert outputs["queues"] == ["default-parent-queue", "default-queue", "robots"]

        assert set(stack.up().changes) == {"same"}, "it knows its releases and its cluster again"
        _is_not_moved_without_an_alias(stack)
        _takes_the_component_out(stack)
        namespace = api.get("/api/v1/namespaces/gpu-operator").json()
        assert namespace["status"]["phase"] == "Active"
        assert {"team", "app.kubernetes.io/part-of"} & namespace["metadata"]["labels"].keys() == {"team"}
        stack.destroy()
        # Labels that the GPU Operator wrote itself stay; ours go.
        eventually(lambda: {item for item in inventory(api) - before if not item.startswith("Node/")} == set())
        for node in NODES:
            assert "kai-anywhere.io/platform" not in api.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"]
