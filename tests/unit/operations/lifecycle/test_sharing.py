"""What `make up` shows of KAI's work on the simulator."""

from typing import Any

import pytest
import yaml

from operations.lifecycle import sharing
from testbed.stacks import ROOT

_WHY = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPU Memory."


def _pod(name: str, *, phase: str = "Pending", node: str | None = None, why: str | None = None) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": why}] if why else []
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": {"gpu-memory": "30000"}},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions},
    }


RUNNING = [_pod(f"sharing-{number}", phase="Running", node="jetson-1") for number in range(4)]
PENDING = _pod("sharing-0-late", why=_WHY)


def test_the_table_has_each_pod_with_its_share_and_why_it_waits() -> None:
    text = sharing.table([*RUNNING, PENDING], width=110)
    assert text.startswith("Scheduled by KAI (examples/sharing.yaml): 4 Running, 1 Pending.\n")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "sharing-3 30000 Running jetson-1" in rows
    assert any(row.startswith("sharing-0-late 30000 Pending - no nodes with enough resources") for row in rows)


def test_brackets_in_kais_words_are_shown_as_they_are() -> None:
    assert "[node-1]: no GPU [/dev/nvidia0]" in sharing.table(
        [_pod("late", why="[node-1]: no GPU [/dev/nvidia0]")], width=110
    )


def test_kai_is_waited_for_until_it_has_decided_about_every_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_POLL_SECONDS", 0.0)
    seen: list[list[dict[str, Any]]] = [
        [],
        RUNNING,
        [*RUNNING, _pod("sharing-0-late")],
        [PENDING, *RUNNING],
    ]
    answers = iter(seen)
    decided = sharing.decided(lambda: next(answers), 5)
    assert [pod["metadata"]["name"] for pod in decided][-1] == "sharing-0-late", "those that run come first"
    assert next(answers, None) is None


def test_a_kai_that_decides_nothing_is_not_waited_for_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_WITHIN_SECONDS", 0.0)
    undecided = [_pod("sharing-1")]
    assert sharing.decided(lambda: undecided, 5) == undecided
    assert "0 Running, 1 Pending." in sharing.table(undecided, width=110)


def test_the_workload_is_five_pods_for_kai_that_may_be_interrupted() -> None:
    manifest = yaml.safe_load((ROOT / sharing.WORKLOAD).read_text(encoding="utf-8"))
    template = manifest["spec"]["template"]
    assert manifest["spec"]["replicas"] == 5
    assert template["metadata"]["annotations"] == {"gpu-memory": "30000"}
    assert template["metadata"]["labels"].items() >= manifest["spec"]["selector"]["matchLabels"].items()
    assert template["spec"]["schedulerName"] == "kai-scheduler"
    assert template["metadata"]["labels"]["priorityClassName"] == "train", "others get no more than their queue's quota"
