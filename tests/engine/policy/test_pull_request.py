"""The comment and the issue from event logs that the real engine wrote, on a real API server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import simulator
from operations.engine_events import record_of
from operations.pull_request import base_pack, report
from operations.pull_request.comment import LIMIT_BYTES, Occasion, drift_issue, preview_comment
from operations.pull_request.review import analyze, events, preview
from operations.redaction import Redactor
from operations.target import Target
from testbed.engine import Stack
from testbed.inventory import connect
from testbed.simulated import stack_settings
from testbed.stacks import Json, changed, jetson, parse, without, x86

_QUEUE = {"gpu": {"quota": 1, "limit": -1, "over_quota_weight": 1}}
PATCH = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[[Json], Stack]) -> Stack:
    """A Jetson stack that is deployed."""
    made = new_stack(changed(jetson(), "kai.queues.old", _QUEUE))
    made.up()
    return made


@pytest.fixture(autouse=True)
def as_it_was(stack: Stack) -> Iterator[None]:
    """Settings that a test changed are put back."""
    good = stack.settings
    yield
    stack.settings = good


def target(stack: Stack) -> Target:
    return Target(stack.name, parse(stack.settings), stack.folder, stack.environment, ())


def comment(stack: Stack, folder: Path, of: Target | None = None) -> tuple[int, str]:
    status, record = preview(of or target(stack), folder)
    return status, preview_comment(record, Occasion(stack.name, status), Redactor())


@pytest.fixture
def judged_as_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pack is told other settings than the stack's own."""
    monkeypatch.setattr("operations.pull_request.review.raw_settings", lambda _: x86())


def test_a_stack_that_is_as_it_should_be_has_nothing_to_tell(stack: Stack, tmp_path: Path) -> None:
    status, text = comment(stack, tmp_path)
    assert status == 0
    assert "### Preview of `test`: nothing changes" in text
    assert "policy pack `kai-anywhere" in text
    assert "#### What changes for people\n\n- Nothing changes.\n" in text
    assert "<details><summary><code>KaiScheduler: " in text
    assert [line for line in text.splitlines() if line.startswith("####")] == [
        "#### What changes for people",
        "#### Resources that stay as they are",
    ]


def test_what_a_pull_request_changes_is_shown_value_by_value_and_a_deletion_stands_out(
    stack: Stack, tmp_path: Path
) -> None:
    settings = changed(stack.settings, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 61440)
    settings = changed(settings, "kai.queues.robots.gpu.quota", 2)
    stack.settings = without(changed(settings, "kai.queues.new", _QUEUE), "kai.queues.old")
    status, text = comment(stack, tmp_path)
    assert status == 0
    assert "1 to be created, 2 to be updated" in text
    assert "- Node `jetson-1`: KAI may share `61440` MiB of each GPU instead of `122880` MiB.\n" in text
    assert "- Queue `new` is new: GPU quota `1` GPUs, GPU limit no limit" in text
    assert "- Queue `robots`: GPU quota `1` → `2` GPUs.\n" in text
    assert "**`NodeLabels`**: 1 to be updated\n" in text
    assert "privilege" not in text
    assert (
        '- metadata.labels["nvidia.com/gpu.memory"]: "122880"\n+ metadata.labels["nvidia.com/gpu.memory"]: "61440"'
        in text
    )
    assert "- spec.resources.gpu.quota: 1\n+ spec.resources.gpu.quota: 2" in text
    assert "- `create` `kubernetes:scheduling.run.ai/v2:Queue` `kai-scheduler-queue-new`" in text
    # A deletion stands out.
    assert "**1 to be deleted**" in text
    assert "- `delete` `kubernetes:scheduling.run.ai/v2:Queue` `kai-scheduler-queue-old`" in text


@pytest.mark.usefixtures("judged_as_x86")
def test_every_finding_of_a_policy_is_shown_and_the_preview_fails(stack: Stack, tmp_path: Path) -> None:
    # Told that this is an x86 stack, the pack refuses everything that is granted on Tegra.
    status, text = comment(stack, tmp_path)
    assert status != 0
    assert "must be solved before this can be deployed.**" in text
    assert "- **blocks**: `privilege` on `reservation-policy`" in text
    assert "- **blocks**: `privilege` on `reservation-namespace`" in text
    assert "No policy pack ran" not in text


def test_a_setting_that_is_wrong_is_told_where_the_plan_would_stand(stack: Stack, tmp_path: Path) -> None:
    of = target(stack)
    stack.settings = changed(stack.settings, "platform.tegra_nodes.jetson-1.gpu_memory_mib", 128)
    status, text = comment(stack, tmp_path, of)
    assert status != 0
    assert "**The preview failed.**" in text
    assert "128 looks like GB" in text


def test_the_comment_of_a_whole_installation_fits(
    tmp_path: Path, cluster: simulator.ControlPlane, engine_environment: dict[str, str]
) -> None:
    fresh = Stack(
        tmp_path / "fresh",
        changed(stack_settings(jetson(), cluster), "cluster.kubeconfig", "/no/such/file"),
        engine_environment,
    )
    status, text = comment(fresh, tmp_path)
    assert status == 0
    assert text.count("- `create`") > 15
    privilege = "reservation pods get **more privilege** (as KAI makes them → `privileged`)"
    assert f"#### What changes for people\n\n- Node `jetson-1`: {privilege}.\n" in text
    assert "- KAI scheduler `" in text
    assert len(text.encode()) < LIMIT_BYTES
    # The same plan as the job that posts gets it: the pack finds in it what the engine's own run of the pack found.
    handed_on = tmp_path / "preview.json"
    report.write(handed_on, fresh.name, status, events(tmp_path), Redactor())
    assert handed_on.stat().st_size < report.LIMIT_BYTES / 5
    plan = report.read(handed_on, fresh.name)
    resources = plan.resources()
    assert len(resources) == record_of(plan.events).registered > 15
    assert base_pack.findings(resources, jetson(), fresh.name) == ()
    refused = base_pack.findings(resources, x86(), fresh.name)
    assert {finding.urn.rsplit("::", 1)[-1] for finding in refused} >= {"reservation-policy", "reservation-namespace"}


def test_drift_is_told_and_nothing_is_told_once_it_is_gone(
    stack: Stack, cluster: simulator.ControlPlane, tmp_path: Path
) -> None:
    queue = "/apis/scheduling.run.ai/v2/queues/robots"
    with connect(cluster) as api:
        labels = {"metadata": {"labels": {"nvidia.com/gpu.memory": "5"}}}
        api.patch("/api/v1/nodes/jetson-1", json=labels, headers=PATCH).raise_for_status()
        api.delete(queue).raise_for_status()
    status, record = preview(target(stack), tmp_path, refresh=True)
    text = drift_issue(record, Occasion(stack.name, status), Redactor())
    assert status != 0
    assert "### `test`: 2 resources changed outside of Pulumi" in text
    assert (
        '- metadata.labels["nvidia.com/gpu.memory"]: "122880"\n+ metadata.labels["nvidia.com/gpu.memory"]: "5"' in text
    )
    assert "- `delete` `kubernetes:scheduling.run.ai/v2:Queue` `kai-scheduler-queue-robots`" in text
    stack.up("--refresh")
    status, record = preview(target(stack), tmp_path, refresh=True)
    assert status == 0
    assert record.drifted == ()


def test_the_state_is_judged_as_the_plan_is(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert analyze(target(stack), tmp_path) is None
    request.getfixturevalue("judged_as_x86")
    objections = analyze(target(stack), tmp_path)
    assert objections is not None
    assert "privilege" in objections
