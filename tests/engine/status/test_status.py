"""What `kai-anywhere status` shows of nodes and pods on a real API server, to its administrator and to others."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from operations.exit_status import ExitStatus
from testbed.shared_gpus import RESERVATIONS
from testbed.stacks import ROOT, STACK_FILES
from testbed.waiting import eventually
from tests.support.api_server import write_kubeconfig
from tests.support.json_schema import judge
from tests.support.pods.twin import post

_COMMAND = (
    "import os, pathlib; from operations import reading; reading.ROOT = pathlib.Path(os.environ['STACKS']); "
    "from operations.__main__ import main; main()"
)
"""The command, with the testbed's stack files: those of the checkout are their user's."""
_NODE, _GROUP, _TEAM = "scripted-1", "b9a3b8f2", "robots"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_QUEUES = "/apis/scheduling.run.ai/v2/queues"
_MERGE = {"Content-Type": "application/merge-patch+json"}


def _is_there(api: httpx2.Client, path: str) -> bool:
    return api.get(path).is_success


def _status(api: httpx2.Client, path: str, status: dict[str, Any]) -> None:
    api.patch(f"{path}/status", json={"status": status}, headers=_MERGE).raise_for_status()


def _pod(api: httpx2.Client, namespace: str, name: str, status: dict[str, Any], **spec: Any) -> None:  # noqa: ANN401 - JSON
    """A pod of KAI's with 30000 MiB, or, in the reservations' namespace, the one that holds the GPU."""
    reserves = namespace == RESERVATIONS
    group = {"runai-gpu-group": _GROUP} if "nodeName" in spec else {}
    labels = {"app": RESERVATIONS} if reserves else {"kai.scheduler/queue": _TEAM}
    annotations = {"run.ai/reserve_for_gpu_index": "GPU-1111"} if reserves else {"gpu-memory": "30000"}
    resources = {"limits": {"nvidia.com/gpu": "1"}} if reserves else {}
    container = {"name": "main", "image": "example.com/main:1", "resources": resources}
    spec = {"schedulerName": "kai-scheduler", "automountServiceAccountToken": False, "containers": [container]} | spec
    metadata = {"name": name, "labels": labels | group, "annotations": annotations}
    post(api, f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
    _status(api, f"/api/v1/namespaces/{namespace}/pods/{name}", status)


@pytest.fixture(scope="module")
def scripted(cluster: simulator.ControlPlane, api: httpx2.Client) -> simulator.ControlPlane:
    """A node with one GPU, two pods that share it, and one that waits."""
    definitions = simulator.chart_path("kai-scheduler") / "crds" / "scheduling.run.ai.yaml"
    for definition in yaml.safe_load_all(definitions.read_text(encoding="utf-8")):
        post(api, _CRDS, definition)
    eventually(partial(_is_there, api, _QUEUES))
    labels = {"nvidia.com/gpu.memory": "131072", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.present": "true"}
    post(api, "/api/v1/nodes", {"metadata": {"name": _NODE, "labels": labels}})
    amounts = {"cpu": "14", "memory": "128Gi", "pods": "110", "nvidia.com/gpu": "1"}
    _status(api, f"/api/v1/nodes/{_NODE}", {"capacity": amounts, "allocatable": amounts})
    for namespace in (_TEAM, RESERVATIONS):
        post(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        eventually(partial(_is_there, api, f"{accounts}/default"))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    _pod(api, RESERVATIONS, "gpu-reservation-1", running, nodeName=_NODE)
    for name in ("arm-0", "arm-1"):
        _pod(api, _TEAM, name, running, nodeName=_NODE)
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node has the memory"}
    _pod(api, _TEAM, "arm-2", {"phase": "Pending", "conditions": [said]})
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": _TEAM}}
    post(api, _QUEUES, queue | {"spec": {"resources": {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}}})
    return cluster


def _run(kubeconfig: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "STACKS": str(STACK_FILES)}
    command = [sys.executable, "-c", _COMMAND, "status", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)


def test_who_shares_the_gpu_and_who_waits_is_printed(scripted: simulator.ControlPlane) -> None:
    done = _run(scripted.kubeconfig)
    assert (done.returncode, done.stderr) == (ExitStatus.WELL, "")
    assert "60000 of 131000 MiB taken, 71000 free" in done.stdout
    assert "no node has the memory" in done.stdout
    assert all(f"{_TEAM}/{name}" in done.stdout for name in ("arm-0", "arm-1", "arm-2"))


def test_its_json_keeps_to_the_documented_schema(scripted: simulator.ControlPlane) -> None:
    done = _run(scripted.kubeconfig, "--json")
    status = json.loads(done.stdout)
    judge(json.loads((ROOT / "docs" / "status.schema.json").read_text(encoding="utf-8"))).validate(status)
    assert status["unseen"] == []
    assert [variable["name"] for variable in status["pending"]] == ["arm-2"]


def test_its_page_is_written(scripted: simulator.ControlPlane, tmp_path: Path) -> None:
    page = tmp_path / "status.html"
    done = _run(scripted.kubeconfig, "--html", str(page))
    assert (done.returncode, done.stdout) == (ExitStatus.WELL, f"Written to {page}.\n")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!")
    assert "arm-0" in text


def test_what_a_user_may_not_read_is_named_and_the_rest_is_shown(
    scripted: simulator.ControlPlane, api: httpx2.Client, tmp_path: Path
) -> None:
    accounts = f"/api/v1/namespaces/{_TEAM}/serviceaccounts"
    post(api, accounts, {"metadata": {"name": "ada"}})
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    post(api, f"{_RBAC}/clusterroles", {"metadata": {"name": "ada"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ada"}
    subjects = [{"kind": "ServiceAccount", "name": "ada", "namespace": _TEAM}]
    binding = {"metadata": {"name": "ada"}, "roleRef": role, "subjects": subjects}
    post(api, f"{_RBAC}/clusterrolebindings", binding)
    access = yaml.safe_load(scripted.kubeconfig.read_text(encoding="utf-8"))
    access["users"][0]["user"] = {"token": post(api, f"{accounts}/ada/token", {})["status"]["token"]}
    done = _run(Path(write_kubeconfig(tmp_path / "kubeconfig", access)))
    assert done.returncode == ExitStatus.WARNINGS
    assert _NODE in done.stdout
    assert "arm-0" not in done.stdout
    for unseen in ("pods", "KAI's queues", "KAI's pod groups", "KAI's bind requests"):
        assert f"warning: {unseen} could not be read: The cluster at " in done.stderr
    assert "warning: nodes" not in done.stderr
    assert "Traceback" not in done.stderr
