"""What verify says of doctor's checks, and the file of evidence for others."""

import json
import stat
from pathlib import Path

import pytest

from cluster.answers import Node
from operations.errors import OperationError
from operations.verify import components
from operations.verify.evidence import evidence, write_evidence
from operations.verify.steps import Outcome, Report, Step
from tests.support.api_server import ApiServer, node
from tests.support.doctor import PATHS, well


def test_a_cluster_that_is_well_holds(api: ApiServer, tmp_path: Path) -> None:
    step = components.verify(well().diagnosis(api, tmp_path))
    assert (step.name, step.outcome, step.evidence) == ("components", Outcome.HELD, ())
    assert step.says.endswith("checks of doctor passed.")


def test_what_is_wrong_is_a_failure_with_its_code(api: ApiServer, tmp_path: Path) -> None:
    world = well()
    world.scale("kai-scheduler-default")
    step = components.verify(world.diagnosis(api, tmp_path))
    assert step.outcome is Outcome.FAILED
    assert step.says.startswith("1 of ")
    [line] = step.evidence
    assert line.startswith("error KA0204: KAI's scheduler is switched off")


def test_checks_that_the_user_may_not_do_are_no_success(api: ApiServer, tmp_path: Path) -> None:
    world = well()
    world.refused[PATHS["pods"]] = 403
    step = components.verify(world.diagnosis(api, tmp_path))
    assert step.outcome is Outcome.SKIPPED
    assert "need more than this user may read" in step.says


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


def test_evidence_has_versions_and_outcomes_and_no_names() -> None:
    content = evidence(REPORT, _nodes(), "v1.36.3")
    text = json.dumps(content)
    for secret in ("corp.example", "jetson-7", "vault", "antonia", "10.1.2.3", "abc123secret"):
        assert secret not in text
    assert content["kubernetes"] == "v1.36.3"
    [(name, board)] = content["nodes"].items()
    assert name == "node-1"
    assert board["labels"] == {"kai-anywhere.io/platform": "tegra", "nvidia.com/gpu.memory": "122880"}
    assert board["architecture"] == "arm64"
    [step] = content["steps"]
    assert (step["place"], step["says"]) == ("node-1", "4 of 5 pods run on node-1, as planned.")


def test_evidence_is_a_new_file_of_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "evidence.json"
    write_evidence(file, REPORT, _nodes(), "v1.36.3")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text(encoding="utf-8"))["version"] == 1
    with pytest.raises(OperationError, match=r"exists. Choose another name with --evidence."):
        write_evidence(file, REPORT, _nodes(), "v1.36.3")
    with pytest.raises(OperationError, match="can't be written: No such file or directory"):
        write_evidence(tmp_path / "none" / "e.json", REPORT, _nodes(), "v1.36.3")
