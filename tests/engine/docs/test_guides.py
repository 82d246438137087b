"""The guides, done as their reader does them: one checkout, one cluster, one stack, from page to page.

The pages are jetson.md, air-gapped.md, gvirtus.md, mixed-clusters.md, upgrade.md, teams.md and distributions.md; which
block is run where is in tests/unit/docs/test_snippets.py. The cluster is a simulator, its kubeconfig the reader's own.
"""

import base64
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
import yaml

import simulator
import toolchain
from manifests.versions import KAI_SCHEDULER
from simulator import NodeKind
from testbed.engine import ASKS_NOBODY, without_logs
from testbed.inventory import connect, mutating_webhooks
from testbed.reused import ReusedSimulators
from testbed.simulated import stack_settings
from testbed.stacks import ROOT, Json, read_stack_file, without
from tests.support.checkout import fresh, shell
from tests.support.docs import blocks, command
from tests.support.hosts.roots import Board, prepare
from tests.support.programs import CONTAINERD
from toolchain.cache import LOCATION_VARIABLE, root

NODES = {
    **simulator.DEFAULT_NODES,
    "jetson-2": NodeKind.JETSON,
    "spark-1": NodeKind.SPARK,
    **dict.fromkeys(("gpu-7", "gpu-8", "gpu-9"), NodeKind.X86),
}
"""Every node that the pages name."""


@dataclass(frozen=True)
class Reader:
    """Somebody with a checkout and a cluster.

    Attributes:
        checkout: where commands are typed.
        cluster: the control plane behind `~/.kube/config`.
        environment: with a home of the reader's own.
    """

    checkout: Path
    cluster: simulator.ControlPlane
    environment: dict[str, str]

    def types(self, script: str) -> str:
        """Run commands in a shell where `make env` was evaluated; `pulumi up` is answered with yes."""
        answered = re.sub(r"(?m)(^|&& )pulumi (up|destroy)", r"\1pulumi \2 --yes", script)
        return shell(f'eval "$(make env)"\n{answered}', self.checkout, self.environment)

    @property
    def file(self) -> Path:
        """The reader's stack file."""
        return self.checkout / "Pulumi.jetson.yaml"

    def edits(self, *snippets: Json) -> None:
        """Write sections into the stack file; what they do not say stays."""
        content = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        settings = content["config"]["kai-anywhere:settings"]
        for snippet in snippets:
            settings |= {key: {**settings.get(key, {}), **value} for key, value in snippet.items()}
        self.file.write_text(yaml.safe_dump(content), encoding="utf-8")

    def drops(self, section: str) -> None:
        """Take a section out of the stack file."""
        content = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        del content["config"]["kai-anywhere:settings"][section]
        self.file.write_text(yaml.safe_dump(content), encoding="utf-8")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, reused_simulators: ReusedSimulators) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    home = folder / "home"
    (home / ".kube").mkdir(parents=True)
    with reused_simulators.lent() as started:
        control_plane = simulator.up(started.folder, nodes=NODES)
        (home / ".kube" / "config").write_bytes(control_plane.kubeconfig.read_bytes())
        environment = {
            "HOME": str(home),
            LOCATION_VARIABLE: str(root().parent),
            "PULUMI_HOME": str(without_logs(folder / "pulumi-home")),
            "PULUMI_CONFIG_PASSPHRASE": "a passphrase of one's own",
            **ASKS_NOBODY,
        }
        with fresh(folder / "kai-anywhere") as checkout:
            made = Reader(checkout, control_plane, environment)
            # The official charts are not to be had everywhere: the reader has the stand-ins.
            content = yaml.safe_load(made.file.read_text(encoding="utf-8"))
            settings = stack_settings(read_stack_file(made.file.read_text(encoding="utf-8")), control_plane)
            settings = without(settings, "cluster.kubeconfig")
            content["config"]["kai-anywhere:settings"] = settings
            made.file.write_text(yaml.safe_dump(content), encoding="utf-8")
            yield made


@pytest.fixture(scope="module")
def api(reader: Reader) -> Iterator[httpx2.Client]:
    with connect(reader.cluster) as connected:
        yield connected


def _settings(page: str, *sections: str) -> Json:
    """The yaml block of a page that says exactly these sections."""
    documents = [yaml.safe_load(block.text) for block in blocks(ROOT / "docs" / page, "yaml")]
    [document] = [document for document in documents if document.keys() == set(sections)]
    return dict(document)


class TestOneStack:
    """In this order: each page finds what the one before has left."""

    def test_a_login_for_the_registry_comes_before_the_stack(self, reader: Reader, api: httpx2.Client) -> None:
        (reader.checkout / "password").write_text("a password", encoding="utf-8")
        reader.edits(_settings("air-gapped.md", "cluster"))
        reader.types(command("air-gapped.md", "kubectl create namespace gpu-operator"))
        held = api.get("/api/v1/namespaces/gpu-operator/secrets/site").json()["data"][".dockerconfigjson"]
        assert json.loads(base64.b64decode(held))["auths"].keys() == {"registry.example.com:5000"}

    def test_the_jetson_page_installs_the_stack(self, reader: Reader, api: httpx2.Client) -> None:
        reader.edits(_settings("jetson.md", "cluster", "platform"))
        script = command("jetson.md", 'eval "$(make env)"')
        script += command("jetson.md", "make preflight KUBECONFIG=~/.kube/config && pulumi up")
        # `--local` is a folder in the home that the system knows, whatever HOME says: a test leaves it alone.
        state = reader.checkout.parent / "state"
        state.mkdir()
        assert "login --local" in script
        output = reader.types(script.replace("login --local", f"login {state.as_uri()}"))
        assert "The cluster is ready for stack 'jetson'. Looked at the cluster at https://" in output
        assert re.search(r"\d+ created", output)
        labels = api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]
        assert labels["nvidia.com/gpu.memory"] == "28672"

    def test_a_fraction_is_taken(self, reader: Reader, api: httpx2.Client) -> None:
        output = reader.types(command("jetson.md", "kubectl apply -f examples/fraction.yaml"))
        assert re.search(r"(?m)^fraction +0/1", output)
        # Nobody plays KAI's binder here: the pod waits, and no reservation pod comes.
        assert api.get("/api/v1/namespaces/default/pods/fraction").json()["spec"]["schedulerName"] == "kai-scheduler"

    def test_the_images_of_a_running_stack_are_listed(self, reader: Reader) -> None:
        listed = reader.types(command("air-gapped.md", "kubectl get pods --all-namespaces \\")).split()
        assert listed == sorted(set(listed))
        assert "docker.io/library/ubuntu:24.04" in listed
        assert [image for image in listed if "kai-scheduler" in image]
        assert [image for image in listed if "gpu-operator" in image]

    def test_what_one_can_go_back_to_is_kept(self, reader: Reader) -> None:
        reader.types(command("upgrade.md", "pulumi stack export --stack jetson --file before.json"))
        kept = json.loads((reader.checkout / "before.json").read_text(encoding="utf-8"))
        assert len(kept["deployment"]["resources"]) > 20

    def test_another_version_of_the_program_takes_the_stack_over(self, reader: Reader) -> None:
        git = "git -c user.name=reader -c user.email=reader@example.com"
        shell(
            f"git init --quiet && git add --all && {git} commit --quiet --message=all\n"
            "git clone --quiet --bare . ../origin.git && git -C ../origin.git tag v1.2.3\n"
            "git remote add origin ../origin.git",
            reader.checkout,
            reader.environment,
        )
        script = command("upgrade.md", "git fetch --tags").replace("make policy\n", "")
        output = reader.types(script)
        assert "HEAD is now at" in output
        assert len(re.findall(r"\d+ unchanged", output)) > 1, "preview and up"
        assert not re.search(r"\d+ (created|updated|replaced|deleted)", output)

    def test_a_job_with_a_remote_gpu_is_taken(self, reader: Reader, api: httpx2.Client) -> None:
        reader.edits(_settings("gvirtus.md", "gvirtus"))
        # As typed: the kubeconfig is chosen, so that `make up` works on this cluster.
        environment = reader.environment | {"KUBECONFIG": f"{reader.environment['HOME']}/.kube/config"}
        chosen = Reader(reader.checkout, reader.cluster, environment)
        output = chosen.types(f"export PULUMI_SKIP_CONFIRMATIONS=true\n{command('gvirtus.md', 'make up')}")
        assert "job.batch/" in output
        [job] = api.get("/apis/batch/v1/namespaces/default/jobs").json()["items"]
        assert job["spec"]["template"]["metadata"]["labels"]["gvirtus.io/enabled"] == "true"
        reader.types("kubectl delete -f examples/gvirtus-app/job.yaml -f examples/fraction.yaml")
        reader.drops("gvirtus")

    def test_the_cluster_becomes_a_mixed_one(self, reader: Reader, api: httpx2.Client) -> None:
        reader.edits(
            _settings("mixed-clusters.md", "platform", "kai"),
            _settings("mixed-clusters.md", "node_profiles"),
            # For the next page.
            {"reservation": {"carrier": "webhook"}, "admission": {"image": "registry.example.com/agents:0.1.0"}},
        )
        reader.types(command("mixed-clusters.md", "make preflight KUBECONFIG=~/.kube/config"))
        [row] = blocks(ROOT / "docs/mixed-clusters.md", "bash")[1:]
        rows = {line.split()[0]: line.split()[5:] for line in reader.types(row.text).splitlines() if " Ready " in line}
        assert rows["jetson-2"] == ["tegra", "57344", "1"]
        assert rows["spark-1"] == ["x86", "114688", "1"]
        assert rows["gpu-7"] == ["46068", "2", "sliced"]
        assert rows["gpu-9"] == ["46068", "2", "fractions"]
        policy = api.get("/apis/nvidia.com/v1/clusterpolicies/cluster-policy").json()
        environment = {variable["name"]: variable["value"] for variable in policy["spec"]["toolkit"]["env"]}
        assert environment["NVIDIA_CONTAINER_RUNTIME_MODE"] == "auto"

    def test_the_policy_takes_over_from_the_webhook(self, reader: Reader, api: httpx2.Client) -> None:
        kinds = "/apis/admissionregistration.k8s.io/v1/mutating"
        assert mutating_webhooks(api)
        assert not api.get(f"{kinds}admissionpolicies").json()["items"]
        reader.edits(_settings("upgrade.md", "cluster", "reservation"))
        reader.types(command("upgrade.md", "make preflight KUBECONFIG=~/.kube/config"))
        assert not mutating_webhooks(api)
        assert [item["metadata"]["name"] for item in api.get(f"{kinds}admissionpolicies").json()["items"]] == [
            "kai-anywhere-reservation-index",
            "kai-anywhere-reservation-overrides",
        ]

    def test_destroy_gives_the_labels_back(self, reader: Reader, api: httpx2.Client) -> None:
        assert "`pulumi destroy` removes everything" in (ROOT / "docs/jetson.md").read_text(encoding="utf-8")
        reader.types(command("recovery.md", "pulumi destroy --run-program --stack jetson"))
        secret = api.get("/api/v1/namespaces/gpu-operator/secrets/site")
        assert secret.status_code == httpx2.codes.OK, "its namespace was the reader's own"
        labels = api.get("/api/v1/nodes/jetson-1").json()["metadata"]["labels"]
        assert "kai-anywhere.io/platform" not in labels
        assert "nvidia.com/gpu.memory" not in labels


def test_a_newer_chart_is_checked(reader: Reader) -> None:
    toolchain.install(toolchain.CHARTS)
    with tarfile.open(reader.checkout / "kai-scheduler-NEWER.tgz", "w:gz") as archive:
        archive.add(ROOT / "simulator" / "charts" / "kai-scheduler", arcname="kai-scheduler")
    newer = f"helm pull {KAI_SCHEDULER.source} --version NEWER"
    pull, check = command("upgrade.md", newer).splitlines()
    assert pull == newer
    pinned = f"helm pull {KAI_SCHEDULER.source} --version {KAI_SCHEDULER.version}"
    other_page = command("teams.md", pinned).replace(KAI_SCHEDULER.version, "NEWER").splitlines()
    assert other_page == [pull, check], "the same two commands, for a version with a number"
    said = shell(check, reader.checkout, reader.environment)
    assert f"kai-scheduler: pinned {KAI_SCHEDULER.version}" in said
    assert "It has what the stacks pass to it" in said


@pytest.mark.parametrize("board", [Board.JETPACK_5, Board.JETPACK_6, Board.JETPACK_7])
def test_a_board_tells_what_it_is(tmp_path: Path, board: Board) -> None:
    host = prepare(tmp_path / "host", board)
    library = "/usr/lib/aarch64-linux-gnu/nvidia/libnvidia-ml.so.1"
    if not host.path(library).exists():
        host.write(library, "")
    script = command("jetson.md", "head -1 /etc/nv_tegra_release")
    for path in ("/etc/nv_tegra_release", library):
        assert path in script
        script = script.replace(path, str(host.path(path)))
    output = shell(script, tmp_path)
    page = (ROOT / "docs/jetson.md").read_text(encoding="utf-8")
    rows = {row[0]: row[1] for row in re.findall(r"(?m)^\| (`# R.*?) \| (JetPack \d) \|", page)}
    [document] = [
        pack for starts, pack in rows.items() if any(output.startswith(s) for s in re.findall("`(.+?)`", starts))
    ]
    assert document.lower().replace(" ", "-") == board
    assert re.search(r"(?m)^Mem: +\d+", output), "memory in MiB"


def test_containerds_own_configuration_has_a_version_and_kubernetes_part(tmp_path: Path) -> None:
    environment = toolchain.environment((CONTAINERD,))
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    sudo.chmod(0o755)
    file = tmp_path / "config.toml"
    script = command("distributions.md", "containerd config default | sudo tee /etc/containerd/config.toml")
    path = f"{sudo.parent}:{environment['PATH']}"
    shell(script.replace("/etc/containerd/config.toml", str(file)), tmp_path, {"PATH": path})
    text = file.read_text(encoding="utf-8")
    assert re.search(r"(?m)^version = [2-4]$", text)
    assert re.search(r"(?m)^disabled_plugins = \[\]$", text)
    dumped = subprocess.run(
        ["containerd", "--config", str(file), "config", "dump"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "SystemdCgroup" in dumped, "what the page says to set is there"
