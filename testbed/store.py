"""What a simulator's etcd holds, read and written below the API server that runs on it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]  # no types

_PACKAGE = "etcdserverpb"
_MESSAGES: Mapping[str, Mapping[str, int]] = {
    "RangeRequest": {"key": 1, "range_end": 2},
    "RangeResponse": {"kvs": 2},
    "KeyValue": {"key": 1, "value": 5},
    "PutRequest": {"key": 1, "value": 2},
    "PutResponse": {},
    "DeleteRangeRequest": {"key": 1, "range_end": 2},
    "DeleteRangeResponse": {},
}
"""The fields that are used here, each with its number: bytes, but for the answer's KeyValues (etcd 3, rpc.proto)."""


def _field(name: str, number: int) -> Any:  # noqa: ANN401 - protobuf ships no types
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=number, label="LABEL_OPTIONAL", type="TYPE_BYTES")
    if name == "kvs":
        repeated = {"label": "LABEL_REPEATED", "type": "TYPE_MESSAGE", "type_name": f".{_PACKAGE}.KeyValue"}
        field = descriptor_pb2.FieldDescriptorProto(name=name, number=number, **repeated)
    return field


def _classes() -> Mapping[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    messages = [
        descriptor_pb2.DescriptorProto(name=name, field=[_field(*field) for field in fields.items()])
        for name, fields in _MESSAGES.items()
    ]
    pool.Add(descriptor_pb2.FileDescriptorProto(name="etcd.proto", package=_PACKAGE, message_type=messages))
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


class Store:
    """The keys and values of an etcd."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def all(self) -> dict[bytes, bytes]:
        """Every object by its key; not what the API server keeps for itself."""
        response = self._call("Range", key=b"/registry/", range_end=b"/registry0")
        return {pair.key: pair.value for pair in response.kvs}

    def put(self, key: bytes, value: bytes) -> None:
        """Write one value."""
        self._call("Put", key=key, value=value)

    def delete(self, key: bytes) -> None:
        """Delete one key, which may be gone."""
        self._call("DeleteRange", key=key)

    def delete_beginning(self, beginning: bytes) -> None:
        """Delete every key that begins so."""
        self._call("DeleteRange", key=beginning, range_end=beginning[:-1] + bytes([beginning[-1] + 1]))

    def _call(self, method: str, **fields: bytes) -> Any:  # noqa: ANN401 - a message by its name
        request = _CLASSES[f"{method}Request"](**fields)
        call = self._channel.unary_unary(
            f"/{_PACKAGE}.KV/{method}",
            request_serializer=_CLASSES[f"{method}Request"].SerializeToString,
            response_deserializer=_CLASSES[f"{method}Response"].FromString,
        )
        return call(request)


@contextmanager
def opened(socket: Path) -> Iterator[Store]:
    """The store behind an etcd's socket."""
    # A whole cluster is more than the 4 MB that a client takes by default.
    with grpc.insecure_channel(f"unix:{socket}", [("grpc.max_receive_message_length", -1)]) as channel:
        yield Store(channel)
