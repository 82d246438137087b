"""The file of evidence for others, and the page that is made of such files."""

import json
import re
import shutil
import stat
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.access.answers.nodes import Node
from operations import reading
from operations.__main__ import app
from operations.doctor.facts import Deployment, Facts
from operations.errors import OperationError
from operations.exit_status import ExitStatus
from operations.verify.compatibility import page, read_evidence
from operations.verify.evidence import Evidence, Installation, evidence, write_evidence
from operations.verify.steps import Outcome, Report, Step
from testbed.stacks import STACK_FILES, Json, changed, jetson, parse, x86
from tests.support.api_server import ApiServer, node

_DAY = date(2026, 11, 23)


def _nodes() -> list[Node]:
    labels = {"nvidia.com/gpu.memory": "122880", "kai-anywhere.io/platform": "tegra", "example.com/owner": "antonia"}
    other = {"kubernetes.io/hostname": "vault.corp.example"}
    return [
        Node.model_validate(node("jetson-7.corp.example", labels=labels)),
        Node.model_validate(node("vault.corp.example", gpus=0, labels=other)),
    ]


REPORT = Report(
    steps=(
        Step(
            name="sharing",
            place="jetson-7.corp.example",
            outcome=Outcome.HELD,
            says="4 of 5 pods run on jetson-7.corp.example, as planned.",
            evidence=("sharing-0: Running on jetson-7.corp.example at 10.1.2.3", "token=abc123secret"),
        ),
    )
)


def _evidence(*, simulated: bool = False, board: str = "Orin 64GB", nodes: list[Node] | None = None) -> Evidence:
    facts = Facts(
        deployments=tuple(
            Deployment.model_validate(
                {
                    "metadata": {"name": name, "namespace": "x"},
                    "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
                }
            )
            for name, image in (
                ("kai-operator", "registry.example.com:5000/kai/operator:v0.18.6@sha256:0"),
                ("gpu-operator", "nvcr.io/nvidia/gpu-operator:v26.7.2"),
            )
        )
    )
    installation = Installation(parse(jetson()), facts, "v1.36.3", simulated, board, "6.2")
    return evidence(REPORT, _nodes() if nodes is None else nodes, installation, _DAY)


def test_evidence_has_versions_and_outcomes_and_no_names() -> None:
    content = _evidence()
    text = content.model_dump_json()
    for secret in ("corp.example", "jetson-7", "vault", "antonia", "10.1.2.3", "abc123secret", "registry.example"):
        assert secret not in text
    assert (content.kubernetes, content.kai, content.gpu_operator) == ("v1.36.3", "v0.18.6", "v26.7.2")
    assert (content.distribution, content.container_toolkit) == ("k3s", "host")
    [(name, board)] = content.nodes.items()
    assert name == "node-1"
    assert board.labels == {"kai-anywhere.io/platform": "tegra", "nvidia.com/gpu.memory": "122880"}
    assert board.architecture == "arm64"
    [step] = content.steps
    assert (step.place, step.says) == ("node-1", "4 of 5 pods run on node-1, as planned.")


@pytest.mark.parametrize(
    ("stack", "deployments", "owner"),
    [
        (jetson(), ["gpu-operator"], "host"),
        (x86(), ["gpu-operator"], "operator"),
        (changed(x86(), "gpu_operator.install", False), ["gpu-operator"], "operator"),
        (changed(x86(), "gpu_operator.install", False), [], "host"),
    ],
    ids=["a Jetson", "a server", "another team's GPU Operator", "no GPU Operator"],
)
def test_a_servers_toolkit_is_the_gpu_operators_where_there_is_one(
    stack: Json, deployments: list[str], owner: str
) -> None:
    spec = {"template": {"spec": {"containers": [{"image": "registry.example.com/any:v1"}]}}}
    seen = [{"metadata": {"name": name, "namespace": "x"}, "spec": spec} for name in deployments]
    facts = Facts(deployments=tuple(map(Deployment.model_validate, seen)))
    installation = Installation(parse(stack), facts, "v1.36.3", simulated=False)
    assert evidence(REPORT, _nodes(), installation, _DAY).container_toolkit == owner


def test_a_node_that_is_a_record_is_no_board_wherever_its_simulator_is() -> None:
    assert _evidence().simulated is False
    shown = node("jetson-1")
    shown["metadata"]["annotations"]["kwok.x-k8s.io/node"] = "fake"
    assert _evidence(nodes=[Node.model_validate(shown)]).simulated is True


def test_evidence_is_a_new_file_of_its_owner_that_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    write_evidence(file, _evidence())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_evidence(tmp_path) == {"evidence.json": _evidence()}
    with pytest.raises(OperationError, match=r"exists. Choose another name with --evidence."):
        write_evidence(file, _evidence())
    with pytest.raises(OperationError, match="can't be written: No such file or directory"):
        write_evidence(tmp_path / "none" / "e.json", _evidence())


def test_a_file_that_verify_did_not_write_is_refused_by_name(tmp_path: Path) -> None:
    for wrong in ("{}", "no json", json.dumps(json.loads(_evidence().model_dump_json()) | {"works": True})):
        (tmp_path / "made-up.json").write_text(wrong, encoding="utf-8")
        with pytest.raises(OperationError, match=r"made-up\.json is not what `kai-anywhere verify --evidence` writes"):
            read_evidence(tmp_path)


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| [")]


def test_without_evidence_of_a_board_the_page_says_so_and_how_to_send_one() -> None:
    for files in ({}, {"a.json": _evidence(simulated=True)}):
        text = page(files)
        assert "None yet: nobody has sent evidence of a real board or server, so none is claimed to work." in text
        assert "kai-anywhere verify --evidence evidence.json" in text
    assert "## Simulated" not in page({})
    assert _rows(page({})) == []


def test_a_board_is_a_row_with_its_versions_and_outcomes() -> None:
    text = page({"orin.json": _evidence()})
    assert "None yet" not in text
    [row] = _rows(text)
    cells = ["[Orin 64GB](evidence/orin.json)", "6.2", "k3s v1.36.3", "host", "v0.18.6", "v26.7.2", "sharing: 1 held"]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [*cells, "2026-11-23"]


def test_a_simulator_s_row_stands_apart_from_boards() -> None:
    text = page({"orin.json": _evidence(), "sim.json": _evidence(simulated=True, board="")})
    boards, simulated = text.split("## Simulated")
    assert "orin.json" in boards
    assert "sim.json" not in boards
    assert "no container ran" in simulated
    assert "[not said](evidence/sim.json)" in simulated


def test_what_somebody_calls_a_board_is_text_and_no_markup() -> None:
    [row] = _rows(page({"x.json": _evidence(board="a | b](http://e.example) <img>\n| c")}))
    assert len(re.findall(r"(?<!\\)\|", row)) == 9
    assert "\\](http" in row
    assert "<img" not in row.replace("\\<", "")


def test_the_command_writes_it(
    api: ApiServer, config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.serve("/api/v1/nodes", {"items": [node("jetson-1")]})
    shutil.copy(STACK_FILES / "Pulumi.jetson.yaml", tmp_path)
    monkeypatch.setattr(reading, "ROOT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", config_path)
    options = ["--no-workload", "--evidence", str(tmp_path / "e.json"), "--board", "AGX", "--jetpack", "7.0"]
    CliRunner().invoke(app, ["verify", *options])
    written = Evidence.model_validate_json((tmp_path / "e.json").read_text(encoding="utf-8"))
    assert (written.board, written.jetpack, written.kai, written.simulated) == ("AGX", "7.0", "", False)
    assert [step.name for step in written.steps] == ["components", "reservation pods"]


def test_where_the_file_can_not_be_made_nothing_is_verified(
    api: ApiServer, config_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", config_path)
    done = CliRunner().invoke(app, ["verify", "--evidence", str(tmp_path / "none" / "e.json")])
    assert "there is no such folder. Choose another one with --evidence." in str(done.exception)
    assert api.asked == []


@pytest.mark.parametrize("option", ["--board", "--jetpack"])
def test_a_name_of_a_board_without_a_file_is_wrong_usage(
    api: ApiServer, config_path: str, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", config_path)
    done = CliRunner().invoke(app, ["verify", option, "AGX"])
    assert done.exit_code == ExitStatus.USAGE
    assert f"{option} is for --evidence." in done.output
    assert api.asked == []
