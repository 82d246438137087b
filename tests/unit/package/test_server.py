"""The package's server over gRPC, as the engine calls it, on a stand-in for the API server."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, json_format, struct_pb2  # type: ignore[import-untyped]  # it ships no types
from pulumi import RunError
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from package import on_cluster
from package.server import PackageServer
from package.version import VERSION
from tests.support.api_server import UID, ApiServer, kubeconfig, running, write_kubeconfig

MANAGER = "kai-anywhere/kai-anywhere/site/node-labels"
MEMORY, PLATFORM = "nvidia.com/gpu.memory", "kai-anywhere.io/platform"


def _inputs(**memory: str) -> Any:  # noqa: ANN401 - protobuf's message
    values = {
        "kubeconfig": f"~/.kai-anywhere/clusters/{UID}",
        "fieldManager": MANAGER,
        "labels": {PLATFORM: "tegra"},
        "nodes": {name: {"labels": {MEMORY: mib}} for name, mib in memory.items()},
    }
    return json_format.ParseDict(values, struct_pb2.Struct())


def _served(server: ApiServer, **memory: str) -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{MEMORY}": {}, f"f:{PLATFORM}": {}}}}
    items = [
        {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {MEMORY: mib, PLATFORM: "tegra"},
                "managedFields": [{"manager": MANAGER, "fieldsV1": fields}],
            }
        }
        for name, mib in memory.items()
    ]
    server.serve("/api/v1/namespaces/kube-system", {"metadata": {"name": "kube-system", "uid": UID}})
    server.serve("/api/v1/nodes", {"items": items})


def _call(ask: Callable[[Any], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Ask a server of the package, in this process."""

    async def served() -> Any:  # noqa: ANN401
        server = grpc.aio.server()
        add = provider_pb2_grpc.add_ResourceProviderServicer_to_server
        add(PackageServer([], "127.0.0.1:1"), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                return await ask(provider_pb2_grpc.ResourceProviderStub(channel))
        finally:
            await server.stop(None)

    return asyncio.run(served())


@pytest.fixture
def bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine keeps the connection."""
    monkeypatch.setattr(on_cluster, "home", lambda: tmp_path)
    file = tmp_path / ".kai-anywhere" / "clusters" / UID
    file.parent.mkdir(parents=True)
    return file


def test_it_says_its_version_and_that_it_takes_part_in_previews() -> None:
    async def ask(stub: Any) -> Any:  # noqa: ANN401
        return await stub.GetPluginInfo(empty_pb2.Empty()), await stub.Configure(provider_pb2.ConfigureRequest())

    info, configured = _call(ask)
    assert info.version == VERSION
    assert configured.supportsPreview


def test_a_resource_lives_from_its_check_to_its_deletion(bound: Path) -> None:
    with running() as server:
        write_kubeconfig(bound, kubeconfig(server.url))
        _served(server, a="1", b="2")

        async def ask(stub: Any) -> Any:  # noqa: ANN401
            checked = await stub.Check(provider_pb2.CheckRequest(news=_inputs(a="1", b="2")))
            made = await stub.Create(provider_pb2.CreateRequest(properties=checked.inputs))
            _served(server, a="9", b="2")
            read = await stub.Read(provider_pb2.ReadRequest(id=made.id, properties=made.properties))
            diff = await stub.Diff(provider_pb2.DiffRequest(id=made.id, olds=read.properties, news=checked.inputs))
            before = len(server.asked)
            updated = await stub.Update(
                provider_pb2.UpdateRequest(id=made.id, olds=read.properties, news=checked.inputs)
            )
            repaired = [request.path for request in server.asked[before:] if request.method == "PATCH"]
            await stub.Delete(provider_pb2.DeleteRequest(id=made.id, properties=updated.properties))
            return made, read, diff, repaired

        made, read, diff, repaired = _call(ask)
    assert made.properties == _inputs(a="1", b="2")
    assert read.properties == read.inputs == _inputs(a="9", b="2")
    assert set(diff.detailedDiff) == {f'nodes["a"].labels["{MEMORY}"]'}
    assert repaired == ["/api/v1/nodes/a"], "what does not differ is not written"
    writes = [(request.path, request.query["fieldManager"]) for request in server.asked if request.method == "PATCH"]
    assert sorted(writes) == [("/api/v1/nodes/a", [MANAGER])] * 3 + [("/api/v1/nodes/b", [MANAGER])] * 2


def test_what_is_refused_reaches_the_engine_with_what_was_done(bound: Path) -> None:
    with running() as server:
        write_kubeconfig(bound, kubeconfig(server.url))
        _served(server, a="1", b="2")
        server.object_to("/api/v1/nodes/b", 403, "no right")

        async def ask(stub: Any) -> Any:  # noqa: ANN401
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Create(provider_pb2.CreateRequest(properties=_inputs(a="1", b="2")))
            return caught.value

        error = _call(ask)
    assert error.details() == "can't label b: no right"
    keys = [key for key, _ in error.trailing_metadata()]
    assert "grpc-status-details-bin" in keys


def test_a_preview_loads_neither_the_program_nor_a_client_of_the_cluster() -> None:
    heavy = ("config", "lightkube", "pulumi_kubernetes")
    script = f"import package.server, sys; print([each for each in {heavy} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_what_stops_the_component_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_vain(_self: object, _request: object, _context: object) -> None:
        await asyncio.sleep(0)
        raise RunError("Waited 60 s for KAI without success.\nLook at: kubectl get pods")

    monkeypatch.setattr(PackageServer, "_construct", in_vain)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _call(lambda stub: stub.Construct(provider_pb2.ConstructRequest()))
    reason = "Waited 60 s for KAI without success.\nLook at: kubectl get pods"
    assert caught.value.details() == reason, "without the class of the exception"
