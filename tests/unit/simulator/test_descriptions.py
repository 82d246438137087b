"""What the simulator is made of besides code: nodes, stages, charts, command lines."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import simulator
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER, ChartPin
from simulator import programs
from simulator.layout import STAGES, Layout
from simulator.nodes import DEFAULT_NODES, GPUS_ANNOTATION, NodeKind, manifest
from simulator.operands.kai import PLAYED_JOBS
from simulator.pki import Pki
from simulator.records import Ports
from toolchain import SIMULATOR

MEMORY, COUNT, PCI = "nvidia.com/gpu.memory", "nvidia.com/gpu.count", "feature.node.kubernetes.io/pci-10de.present"


def stages() -> dict[str, dict[str, Any]]:
    return {path.stem: yaml.safe_load(path.read_text()) for path in STAGES.glob("*.yaml")}


@pytest.mark.parametrize(
    ("kind", "arch", "present"),
    [
        (NodeKind.JETSON, "arm64", set()),
        (NodeKind.X86, "amd64", {MEMORY, COUNT, PCI}),
        (NodeKind.CPU, "amd64", set()),
        (NodeKind.SPARK, "arm64", {COUNT, PCI}),
    ],
)
def test_nodes_carry_the_labels_that_gfd_and_nfd_give_them(kind: NodeKind, arch: str, present: set[str]) -> None:
    node = manifest("n", kind)
    labels = node["metadata"]["labels"]
    assert {MEMORY, COUNT, PCI} & labels.keys() == present
    assert labels["kubernetes.io/arch"] == node["status"]["nodeInfo"]["architecture"] == arch
    assert "nvidia.com/gpu.present" not in labels, "the operator sets this one"
    assert "nvidia.com/gpu" not in node["status"]["capacity"], "the device plugin advertises GPUs"
    if COUNT in present:
        assert labels[COUNT] == node["metadata"]["annotations"][GPUS_ANNOTATION]


def test_the_default_nodes_are_a_jetson_an_x86_server_and_one_without_gpu() -> None:
    assert dict(DEFAULT_NODES) == {"jetson-1": "jetson", "x86-1": "x86", "cpu-1": "cpu"}
    assert manifest("jetson-1", NodeKind.JETSON)["status"]["capacity"]["memory"] == "131072Mi"


def test_stages_are_named_after_their_files() -> None:
    assert {stem: stage["metadata"]["name"] for stem, stage in stages().items()} == {stem: stem for stem in stages()}
    assert {"node-ready", "node-heartbeat", "pod-running", "pod-completed", "pod-deleted"} == stages().keys()


def test_kwok_deletes_no_pod_whose_grace_period_is_0_already() -> None:
    """It deletes by name: the API server removes that pod itself, and the next one of its name would go instead."""
    [expression] = stages()["pod-deleted"]["spec"]["selector"]["matchExpressions"]
    assert "select(.deletionGracePeriodSeconds > 0)" in expression["jq"]["key"]
    assert expression["jq"]["operator"] == "Exists"


def test_kwok_leaves_the_pods_of_emulated_jobs_to_us() -> None:
    expressions = stages()["pod-completed"]["spec"]["selector"]["matchExpressions"]
    [excluded] = [e["jq"]["values"] for e in expressions if e["jq"]["key"] == ".metadata.ownerReferences.[].name"]
    assert sorted(excluded) == sorted(PLAYED_JOBS)


@pytest.mark.parametrize("pin", [KAI_SCHEDULER, GPU_OPERATOR], ids=lambda pin: pin.name)
def test_charts_have_the_pinned_version_and_say_what_they_are(pin: ChartPin) -> None:
    chart = yaml.safe_load((simulator.chart_path(pin.name) / "Chart.yaml").read_text())
    assert chart["name"] == pin.name
    # KAI's chart names itself without the v of its tag.
    assert chart["version"] in {pin.version, pin.version.removeprefix("v")}
    assert chart["description"].startswith("Stand-in")


@pytest.mark.parametrize("name", ["kai-scheduler", "gpu-operator"])
def test_every_value_that_a_template_reads_has_a_default(name: str) -> None:
    """Except those which the official charts read without giving one."""
    folder = simulator.chart_path(name)
    values = yaml.safe_load((folder / "values.yaml").read_text())
    optional = {"binder.runtimeClassName", "binder.resourceReservationPodResources", "binder.cdiEnabled"}
    optional |= {"global.gpuSharing"}
    optional |= {"operator.resources", "operator.version"}
    read = {
        path
        for template in (folder / "templates").iterdir()
        for path in re.findall(r"(?:\.Values|\$values)\.([A-Za-z]+(?:\.[A-Za-z]+)*)", template.read_text())
    }
    assert read

    def stated(path: str) -> bool:
        current: Any = values
        for key in path.split("."):
            if not isinstance(current, dict) or key not in current:
                return False
            current = current[key]
        return True

    assert {path for path in read if not stated(path)} <= optional


def test_an_unknown_chart_is_named_with_the_known_ones() -> None:
    with pytest.raises(simulator.SimulatorError, match="gpu-operator, kai-scheduler"):
        simulator.chart_path("nvidia")


CRDS = {
    "configs.kai.scheduler",
    "schedulingshards.kai.scheduler",
    "queues.scheduling.run.ai",
    "clusterpolicies.nvidia.com",
    "nodefeaturerules.nfd.k8s-sigs.io",
}
NAMESPACED_CRDS = {"bindrequests.scheduling.run.ai", "podgroups.scheduling.run.ai"}


def test_charts_bring_definitions_with_their_scopes() -> None:
    descriptions = {
        crd["metadata"]["name"]: crd["spec"]["scope"]
        for name in ("kai-scheduler", "gpu-operator")
        for path in (simulator.chart_path(name) / "crds").iterdir()
        for crd in yaml.safe_load_all(path.read_text())
    }
    assert descriptions == dict.fromkeys(CRDS, "Cluster") | dict.fromkeys(NAMESPACED_CRDS, "Namespaced")


def test_no_command_line_holds_a_secret_and_each_names_its_folder(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path)
    ports = Ports(api_server=3, egress=4)
    identities = Pki(layout.pki)
    installed = {program: Path("/bin") / program.name for program in SIMULATOR}
    for command in (
        programs.etcd(installed, layout),
        programs.api_server(installed, identities, ports),
        programs.controller_manager(installed, layout, identities),
        programs.scheduler(installed, layout),
        programs.kwok(installed, layout),
        programs.operands(layout, kai=True),
        programs.pods(layout, str(tmp_path), ports),
    ):
        assert any(f"={layout.folder}/" in argument for argument in command.arguments), "how a leftover is recognised"
        assert not [argument for argument in command.arguments if "token" in argument]
        assert set(command.environment(layout)) <= {
            *("PATH", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "HOME"),
            *("PYTHONPATH", "PYTHONUNBUFFERED", "KAI_ANYWHERE_CACHE"),
        }
