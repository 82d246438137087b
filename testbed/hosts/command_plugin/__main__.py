"""Serves the plugin on a free port of loopback, which it prints, until the engine ends it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from testbed.hosts.command_plugin.provider import CommandProvider

_MOST_AT_ONCE = 64
_MESSAGE_BYTES = 64 * 1024 * 1024


def main() -> None:
    """Serve."""
    sizes = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.max_send_message_length", _MESSAGE_BYTES)]
    server = grpc.server(ThreadPoolExecutor(_MOST_AT_ONCE), options=sizes)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(CommandProvider(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        server.wait_for_termination()


if __name__ == "__main__":
    main()
