"""The objects for the Pulumi Kubernetes Operator, judged by an API server with the operator's own definition.

The definition is read from the operator's Go module where the registry has it, or from the file that OPERATOR_CRD
names; the operator itself can't be had here.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import simulator
from operations.fleet.file import FleetFile, Operator, Wave
from operations.fleet.operator import field_manager, objects
from operations.fleet.order import steps
from testbed.inventory import connect
from testbed.waiting import eventually

_MODULE = "github.com/pulumi/pulumi-kubernetes-operator"
_FILE = "deploy/crds/pulumi.com_stacks.yaml"
_DIGESTS = {
    "v1.16.0": "fd4b0dbfd9e0fa9cf0b57d1e2bc2bf5ddb8f4158cd1a83425f43a92f1a188f4d",
    "v2.9.0": "d8ce0513bb77d5d57753e521fd42e87a87bdaf7abda1be2584aa23c1c03ea290",
}
"""Of the definition. The checksum database is not asked: it is not everywhere where the module is."""
SINCE_2 = {"serviceAccountName", "workspaceTemplate"}
"""What version 1 of the operator does not know."""
NAMESPACE = "pulumi-kubernetes-operator"
STACKS = f"/apis/pulumi.com/v1/namespaces/{NAMESPACE}/stacks"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _definition(version: str, folder: Path) -> Any:  # noqa: ANN401 - YAML
    given = os.environ.get("OPERATOR_CRD")
    text = Path(given).read_bytes() if given and version == "v2.9.0" else _from_module(version, folder)
    assert hashlib.sha256(text).hexdigest() == _DIGESTS[version]
    return yaml.load(text, yaml.CSafeLoader)


def _from_module(version: str, folder: Path) -> bytes:
    go = shutil.which("go")
    if go is None:
        pytest.skip("the operator's definition is in a Go module, and there is no `go` on PATH")
    module = f"{_MODULE}/v2@{version}" if version.startswith("v2") else f"{_MODULE}@{version}"
    done = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=folder,
        env=dict(os.environ) | {"GONOSUMDB": _MODULE, "GOFLAGS": "-mod=mod"},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    answer = json.loads(done.stdout or "{}")
    if "Dir" not in answer:
        pytest.skip(f"no registry has {module}: {answer.get('Error', done.stderr)}")
    return (Path(answer["Dir"]) / _FILE).read_bytes()


@pytest.fixture(scope="module")
def server(cluster: simulator.ControlPlane) -> Iterator[httpx2.Client]:
    """The API server, with the namespace of the objects."""
    with connect(cluster) as api:
        api.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}})
        yield api


@pytest.fixture
def version(request: pytest.FixtureRequest, server: httpx2.Client, tmp_path: Path) -> Iterator[str]:
    """The operator's definition of a version, in force."""
    chosen: str = request.param
    content = _definition(chosen, tmp_path)
    name = content["metadata"]["name"]
    made = server.post(DEFINITIONS, json=content)
    assert made.status_code == 201, made.text
    eventually(lambda: server.get(STACKS).status_code == 200)
    yield chosen
    server.delete(f"{DEFINITIONS}/{name}")
    eventually(lambda: server.get(f"{DEFINITIONS}/{name}").status_code == 404)


OPERATOR = Operator(
    repository="https://git.example.com/clusters.git",
    folder="gpu",
    backend="s3://states?region=eu-central-1",
    image="pulumi/pulumi:3.259.0-nonroot",
)


def _objects(operator: Operator = OPERATOR) -> list[dict[str, Any]]:
    fleet = FleetFile(canary="berlin", waves=[Wave(name="all", sites=["*"])], operator=operator)
    return objects(operator, "kai-anywhere", steps(fleet, ["berlin", "eu-1", "us-1"]), "0" * 40)


def _tried(server: httpx2.Client, stack: dict[str, Any]) -> httpx2.Response:
    """Create it strictly, and store nothing."""
    return server.post(STACKS, params={"fieldValidation": "Strict", "dryRun": "All"}, json=stack)


@pytest.mark.parametrize("version", ["v2.9.0"], indirect=True)
def test_version_2_takes_every_object_as_it_is(server: httpx2.Client, version: str) -> None:
    assert version
    for stack in _objects():
        answer = _tried(server, stack)
        assert answer.status_code == 201, answer.text
        kept = answer.json()["spec"]
        assert kept == kept | stack["spec"], "nothing is pruned"


@pytest.mark.parametrize("version", ["v2.9.0"], indirect=True)
@pytest.mark.parametrize("field", ["stack", "envRefs", "prerequisites", "workspaceTemplate"])
def test_version_2_would_refuse_an_object_that_is_wrong(server: httpx2.Client, version: str, field: str) -> None:
    assert version
    [*_, stack] = _objects()
    assert stack["spec"][field]
    stack["spec"][field] = {"spec": {"podTemplat": {}}} if field == "workspaceTemplate" else [{"nam": 1}]
    assert _tried(server, stack).status_code in {400, 422}


def _applied(server: httpx2.Client, operator: Operator, version: str) -> httpx2.Response:
    """Apply a site's object as the file says it: by the server, in the name of the fleet."""
    [_, stack, _] = _objects(operator)
    stack["spec"] = {key: value for key, value in stack["spec"].items() if version != "v1.16.0" or key not in SINCE_2}
    return server.patch(
        f"{STACKS}/{stack['metadata']['name']}",
        params={"fieldManager": field_manager(operator)},
        headers={"Content-Type": "application/apply-patch+yaml"},
        content=json.dumps(stack),
    )


@pytest.mark.parametrize("version", ["v1.16.0", "v2.9.0"], indirect=True)
@pytest.mark.parametrize(
    "change",
    [{"repository": "https://git.example.com/labs.git"}, {"folder": None}, {"folder": "lab"}],
    ids=["another repository", "its root", "another folder"],
)
def test_a_second_fleet_with_a_site_of_the_same_name_takes_nothing_over(
    server: httpx2.Client, version: str, change: dict[str, str | None]
) -> None:
    for _ in range(2):
        applied = _applied(server, OPERATOR, version)
        assert applied.is_success, applied.text
    refused = _applied(server, OPERATOR.model_copy(update=change), version)
    assert refused.status_code == 409, refused.text
    causes = {cause["field"]: cause["message"] for cause in refused.json()["details"]["causes"]}
    assert causes[".metadata.annotations.kai-anywhere.io/fleet"] == f'conflict with "{field_manager(OPERATOR)}"'
    stack = server.get(f"{STACKS}/kai-anywhere-eu-1").json()
    assert (stack["spec"]["projectRepo"], stack["spec"]["repoDir"]) == (OPERATOR.repository, OPERATOR.folder)


@pytest.mark.parametrize("version", ["v1.16.0"], indirect=True)
def test_version_1_takes_all_but_what_came_with_version_2(server: httpx2.Client, version: str) -> None:
    assert version
    for stack in _objects():
        refused = _tried(server, stack)
        assert refused.status_code == 400
        assert all(f'unknown field \\"spec.{field}\\"' in refused.text for field in SINCE_2)
        assert refused.text.count("unknown field") == len(SINCE_2)
        stack["spec"] = {key: value for key, value in stack["spec"].items() if key not in SINCE_2}
        taken = _tried(server, stack)
        assert taken.status_code == 201, taken.text
        assert taken.json()["spec"] == stack["spec"]
