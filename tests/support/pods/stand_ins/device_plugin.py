"""Stands in for squat/generic-device-plugin, with the arguments that the program gives it.

It registers through the kubelet's socket (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1) and serves one group of paths.
The few messages are written by hand: every field of theirs is a string or a message.
"""

import argparse
import http.server
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

_FOLDER = Path("/var/lib/kubelet/device-plugins")
_HEALTH_PORT = 8080
_CONTINUED = 0x80
_LENGTH_DELIMITED = 2


def message(*fields: tuple[int, str | bytes]) -> bytes:
    """A protobuf message of length-delimited fields: number and content each."""
    written = b""
    for number, content in fields:
        data = content.encode() if isinstance(content, str) else content
        written += bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(data)) + data
    return written


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of such a message."""
    place = 0
    while place < len(data):
        number, place = data[place] >> 3, place + 1
        length = shift = 0
        while True:
            byte, place = data[place], place + 1
            length |= (byte & ~_CONTINUED) << shift
            shift += 7
            if byte < _CONTINUED:
                break
        yield number, data[place : place + length]
        place += length


def _varint(value: int) -> bytes:
    written = b""
    while value >= _CONTINUED:
        written += bytes([value & ~_CONTINUED & 0xFF | _CONTINUED])
        value >>= 7
    return written + bytes([value])


class Plugin:
    """The service `v1beta1.DevicePlugin`: how many devices there are, and what a container with one of them gets."""

    def __init__(self, count: int, gives: Callable[[], bytes]) -> None:
        self._devices = [f"device-{number}" for number in range(count)]
        self._gives = gives

    def handlers(self) -> Iterable[grpc.GenericRpcHandler]:
        """What gRPC calls."""
        unary = grpc.unary_unary_rpc_method_handler
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "GetDevicePluginOptions": unary(lambda _request, _context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            "Allocate": unary(self._allocate),
        }
        return [grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)]

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield message(*((1, message((1, device), (2, "Healthy"))) for device in self._devices))
        over = threading.Event()
        context.add_callback(over.set)
        over.wait()

    def _allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        return message(*((1, self._gives()) for number, _container in fields(request) if number == 1))


def serve(folder: Path, resource: str, plugin: Plugin) -> grpc.Server:
    """Serve a resource to the kubelet that listens in a folder."""
    endpoint = f"{resource.replace('/', '_')}.sock"
    (folder / endpoint).unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor())
    server.add_generic_rpc_handlers(tuple(plugin.handlers()))
    server.add_insecure_port(f"unix://{folder / endpoint}")
    server.start()
    with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}") as kubelet:
        register: grpc.UnaryUnaryMultiCallable[bytes, bytes] = kubelet.unary_unary("/v1beta1.Registration/Register")
        register(message((1, "v1beta1"), (2, endpoint), (3, resource)), timeout=60)
    return server


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer the probes."""
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()


def main() -> None:
    """Serve, register, and wait for the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--domain", required=True)
    parser.add_argument("--device", required=True, type=json.loads)
    arguments = parser.parse_args()
    [group] = arguments.device["groups"]
    devices = message(
        *((3, message((1, path["mountPath"]), (2, path["path"]), (3, path["permissions"]))) for path in group["paths"])
    )
    resource = f"{arguments.domain}/{arguments.device['name']}"
    server = serve(_FOLDER, resource, Plugin(group["count"], lambda: devices))

    def end(*_: object) -> None:
        # Its threads would keep the process alive.
        server.stop(None)
        sys.exit()

    signal.signal(signal.SIGTERM, end)
    http.server.ThreadingHTTPServer(("", _HEALTH_PORT), _Health).serve_forever()


if __name__ == "__main__":
    main()
