"""The package's server: its component, which is a whole stack, and its resource, which is the labels of many nodes.

The engine starts one for each stack whose nodes are labelled by the resource, at every preview too. So the component,
which needs the settings' models and the whole program, is loaded when somebody asks for it.
"""

import sys
from typing import Any

import grpc
from pulumi import RunError
from pulumi.provider import Provider
from pulumi.provider.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
from typing_extensions import override

from package.node_labels import ManyNodeLabels
from package.version import VERSION

_LOOPBACK = "127.0.0.1:0"


class PackageServer(ManyNodeLabels, ProviderServicer):
    """The SDK's server of components, with one resource beside them."""

    def __init__(self, args: list[str], engine_address: str) -> None:
        super().__init__(Provider(VERSION), args, engine_address)

    @override
    async def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, acceptResources=True, acceptOutputs=True, supportsPreview=True
        )

    @override
    async def GetSchema(self, request: Any, context: Any) -> Any:
        self._load()
        return await super().GetSchema(request, context)

    @override
    async def Construct(self, request: Any, context: Any) -> Any:
        self._load()
        try:
            return await super().Construct(request, context)
        except RunError as error:
            # A wait that timed out, or a host's verdict; gRPC would put the exception's class before the text.
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise

    def _load(self) -> None:
        if type(self.provider) is Provider:
            from package.provider import KaiAnywherePackage  # noqa: PLC0415 - see above

            self.provider = KaiAnywherePackage()


async def serve(engine_address: str, args: list[str]) -> None:
    """Serve until the engine ends the process; the port is printed, as the engine waits for it."""
    server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
    add = provider_pb2_grpc.add_ResourceProviderServicer_to_server
    add(PackageServer(args, engine_address), server)
    port = server.add_insecure_port(_LOOPBACK)
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()
