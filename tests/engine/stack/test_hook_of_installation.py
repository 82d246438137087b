"""An installation that Helm holds up in a hook of a chart: what is told."""

from pathlib import Path

import httpx2

import simulator
from testbed.engine import Stack
from testbed.simulated import stack_settings
from testbed.stacks import changed, jetson
from tests.support.helm_hooks import NAME, held, with_hooks


def test_up_names_the_job_and_who_refuses_its_pod_and_goes_on_once_it_may_run(
    api: httpx2.Client, cluster: simulator.ControlPlane, engine_environment: dict[str, str], tmp_path: Path
) -> None:
    settings = changed(with_hooks(stack_settings(jetson(), cluster), tmp_path), "gpu_operator.timeout_seconds", 60)
    stack = Stack(tmp_path / "stack", settings, engine_environment)
    with stack.started() as run:
        assert run.stdout is not None
        with held(api):
            entry = next((line for line in run.stdout if "waiting for Job" in line), "nothing")
        said = run.stdout.read()
    assert run.returncode == 0, said
    hook = f"waiting for Job '{NAME}' in namespace 'gpu-operator', a hook of a Helm release: its pods are refused: "
    assert hook in entry
    assert f"'{NAME}'" in entry.partition(hook)[2], "the policy is named"
