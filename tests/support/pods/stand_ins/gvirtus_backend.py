"""Stands in for gvirtus-backend without any CUDA plugin: speaks the protocol's framing and knows no routine.

It was checked on GVirtuS' own core started that way: an unknown routine is answered with -1 in 20 bytes.
"""

import json
import socketserver
import struct
import sys
from pathlib import Path

_LENGTH = struct.Struct("<Q")
_REPLY = struct.Struct("<idQ")
"""Exit code, seconds, length of the payload."""


class Connection(socketserver.StreamRequestHandler):
    """One client's."""

    def handle(self) -> None:  # type: ignore[explicit-override] # typing_extensions is not in the image
        """Answer every request."""
        while name := self._routine():
            (length,) = _LENGTH.unpack(self.rfile.read(_LENGTH.size))
            self.rfile.read(length)
            print(f"unknown routine {name}", flush=True)  # noqa: T201 - the pod's log
            self.wfile.write(_REPLY.pack(-1, 0.0, 0))

    def _routine(self) -> str:
        name = b""
        while (letter := self.rfile.read(1)) not in {b"\0", b""}:
            name += letter
        return name.decode("ascii")


class Backend(socketserver.ThreadingTCPServer):
    """All clients are threads of one process, as GVirtuS has it."""

    allow_reuse_address = True
    daemon_threads = True


def main() -> None:
    """Serve as the properties file says. Like GVirtuS it binds every address, whatever stands there."""
    communicator = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["communicator"][0]
    if not isinstance(communicator["plugins"], list):
        raise TypeError("plugins: not a list")
    with Backend(("0.0.0.0", int(communicator["endpoint"]["port"])), Connection) as backend:  # noqa: S104 - as GVirtuS
        backend.serve_forever()


if __name__ == "__main__":
    main()
