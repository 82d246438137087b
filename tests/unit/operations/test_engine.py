"""What a failed command of the engine leads to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ClusterUnreachableError
from operations.engine import destroy, pulumi, up
from operations.errors import OperationError
from operations.target import Target
from testbed.stacks import Json, jetson, parse
from tests.support.hosts.settings import jetson_with_host


@pytest.mark.parametrize(("stack", "told"), [(jetson_with_host(), True), (jetson(), False)], ids=["hosts", "none"])
def test_a_failed_run_of_a_stack_with_hosts_names_the_page_of_their_errors(
    stack: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    program = tmp_path / "pulumi"
    program.write_text("#!/bin/sh\nexit 255\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    target = Target("jetson", parse(stack), tmp_path, {"PATH": f"{tmp_path}:/bin"}, ())
    with pytest.raises(OperationError, match=r"^pulumi up failed \(status 255\); the reason is above\.") as caught:
        pulumi(target, "up")
    assert ("docs/hosts.md" in str(caught.value)) is told


@pytest.mark.parametrize("command", [up, destroy])
def test_a_kubeconfig_that_is_not_there_is_told_before_a_login_is_asked_for(
    command: Callable[[Target], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    # No pulumi is there to ask for one.
    target = Target("jetson", parse(jetson()), tmp_path, {"PATH": str(tmp_path)}, ())
    with pytest.raises(ClusterUnreachableError, match=f"No kubeconfig at {tmp_path / 'missing'}"):
        command(target)
