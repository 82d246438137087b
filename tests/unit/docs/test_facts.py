"""Paths, commands and versions of the guides are those of the program."""

import re
import tomllib
from pathlib import Path

import pytest

from agents.host.look.distribution import Mechanism, layout
from agents.host.look.runtime import NVIDIA_FILE
from agents.host.root import Root
from agents.host.steps.containerd import RUNC_FILE
from config.cluster import Distribution
from manifests.gpu_operator import toolkit_environment
from manifests.node_labels import KAI_NODE_POOL, PLATFORM, TIME_SLICING_POOL
from manifests.objects import resolve_chart
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER
from testbed.stacks import ROOT, changed, parse, x86
from toolchain.cache import LOCATION_VARIABLE
from toolchain.download import OFFLINE_VARIABLE
from toolchain.programs import KUBERNETES_PROVIDER_VERSION

DISTRIBUTIONS = (ROOT / "docs/distributions.md").read_text(encoding="utf-8")
AIR_GAPPED = (ROOT / "docs/air-gapped.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", DISTRIBUTIONS))

_TEMPLATES = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "templates").glob("*/Pulumi.*.yaml"))

every_distribution = pytest.mark.parametrize("distribution", Distribution)


def test_every_distribution_has_its_section() -> None:
    assert SECTIONS.keys() >= set(Distribution)


@pytest.mark.parametrize("file", ["docs/distributions.md", *_TEMPLATES])
def test_whoever_chooses_a_distribution_sees_all_of_them(file: str) -> None:
    [listed] = re.findall(r"# (kubeadm \| .*|.* \| kubeadm)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed.split(" | ")) == sorted(Distribution)


def test_the_readme_names_every_distribution() -> None:
    [row] = re.findall(r"(?m)^\| (.*) \| \[Distributions\]", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(re.split(r", | or ", row)) == set(Distribution)


@every_distribution
def test_a_section_names_the_files_and_the_restart_of_the_host_agent(
    distribution: Distribution, tmp_path: Path
) -> None:
    places = layout(Root(str(tmp_path)), distribution)
    for said in (places.effective, places.socket, " ".join(places.restart)):
        assert f"`{said}`" in SECTIONS[distribution], said


@every_distribution
def test_the_operator_is_told_the_same_files(distribution: Distribution, tmp_path: Path) -> None:
    variables = toolkit_environment(parse(changed(x86(), "cluster", {"distribution": distribution.value})))
    places = layout(Root(str(tmp_path)), distribution)
    assert variables.get("CONTAINERD_SOCKET", places.socket) == places.socket
    assert variables.get("CONTAINERD_CONFIG", places.effective) in {places.config, places.effective}


@every_distribution
def test_only_where_the_agent_writes_drop_ins_they_are_named(distribution: Distribution, tmp_path: Path) -> None:
    writes = layout(Root(str(tmp_path)), distribution).mechanism is Mechanism.DROP_IN
    [changes] = re.findall(r"(?m)^\| `hosts` changes \| (.*) \|$", SECTIONS[distribution])
    assert (RUNC_FILE in changes, NVIDIA_FILE in changes) == (writes, writes)


def test_charts_are_pulled_from_where_they_are_pinned() -> None:
    for page in ("air-gapped.md", "teams.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        pulled = [f"helm pull {KAI_SCHEDULER.source} --version {KAI_SCHEDULER.version}"]
        if "--repo " in text:
            pulled.append(
                f"helm pull {GPU_OPERATOR.name} --repo {GPU_OPERATOR.source} --version {GPU_OPERATOR.version}"
            )
        assert re.findall(r"(?m)^helm pull .*$", text) == pulled
    assert f"{GPU_OPERATOR.name}-{GPU_OPERATOR.version}.tgz" in AIR_GAPPED


def test_the_first_page_and_the_example_name_the_pinned_versions() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"GPU Operator {GPU_OPERATOR.version} in namespace gpu-operator\n" in readme
    assert f"KAI scheduler {KAI_SCHEDULER.version.removeprefix('v')} in namespace kai-scheduler;" in readme
    example = (ROOT / "examples/reservation-pod.yaml").read_text(encoding="utf-8")
    assert f"/resourcereservation:{KAI_SCHEDULER.version}\n" in example


def test_the_charts_of_the_air_gapped_site_come_from_there_alone() -> None:
    [block] = [match for match in re.findall(r"(?ms)^```yaml\n(.*?)^```$", AIR_GAPPED) if "chart:" in match]
    assert len(re.findall(r"source: (?:\./|oci://registry\.example\.com)", block)) == len(re.findall("source:", block))
    assert resolve_chart(parse(x86()).kai.chart, KAI_SCHEDULER).chart == KAI_SCHEDULER.source


def test_plugins_are_those_that_the_program_uses() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    command = next(pin.partition("==")[2] for pin in project["dependencies"] if pin.startswith("pulumi-command=="))
    installed = re.findall(r"(?m)^pulumi plugin install resource (\w+) (\S+) --file \S+-v([\d.]+)-linux", AIR_GAPPED)
    assert installed == [
        ("kubernetes", KUBERNETES_PROVIDER_VERSION, KUBERNETES_PROVIDER_VERSION),
        ("command", command, command),
    ]


def test_the_variables_of_the_toolchain_are_called_by_their_names() -> None:
    named = set(re.findall(r"KAI_ANYWHERE_[A-Z]+", AIR_GAPPED))
    assert named == {LOCATION_VARIABLE, OFFLINE_VARIABLE}


def test_labels_are_called_by_their_names() -> None:
    mixed = (ROOT / "docs/mixed-clusters.md").read_text(encoding="utf-8")
    assert f"`{KAI_NODE_POOL}: {TIME_SLICING_POOL}`" in mixed
    assert f"kubectl get nodes -L {PLATFORM}," in mixed
    assert f"`{PLATFORM}=tegra`" in (ROOT / "docs/jetson.md").read_text(encoding="utf-8")
