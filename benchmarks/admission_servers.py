"""The admission server's handlers under each HTTP server that was compared: `python -m benchmarks.admission_servers X`.

With a second word, `log`, they write the log of the installed server. Prints one line of JSON once it listens: port and
authorities. It ends with its standard input.
"""

import asyncio
import datetime as dt
import json
import os
import sys
from http.server import ThreadingHTTPServer
from typing import Final

from agents.admission import review
from agents.admission.answers import Mutations
from agents.admission.certificates import pairs as certificates
from agents.admission.certificates.tls import LiveTls
from agents.admission.errors import BadRequestError
from agents.admission.listener import Limits, Listener
from agents.admission.observability import Metrics, log_to_stderr
from agents.admission.server import AdmissionServer
from testbed.admission.objects import served
from testbed.http_server import Handler

NAME: Final = "kai-anywhere-admission.kai-anywhere.svc"
VARIANTS: Final = ("aiohttp", "aiohttp+uvloop", "http.server")


def main(variant: str, log: str = "") -> None:
    """Serve."""
    if log:
        log_to_stderr()
    # One core, as the goal says; the client takes another.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    mutations = served()
    now = dt.datetime.now(dt.UTC)
    pair = certificates.issue(NAME, now, dt.timedelta(hours=1))
    tls = LiveTls()
    tls.load(pair)
    authorities = certificates.bundle([pair.certificate], now).decode()
    match variant:
        case "aiohttp":
            asyncio.run(_serve(mutations, tls, authorities))
        case "aiohttp+uvloop":
            import uvloop  # noqa: PLC0415  # not on Windows, and only this variant needs it

            uvloop.run(_serve(mutations, tls, authorities))
        case "http.server":
            _serve_threads(mutations, tls, authorities)
        case _:
            raise SystemExit(f"{variant}: unknown; there are {', '.join(VARIANTS)}")


def _listening(port: int, authorities: str) -> None:
    sys.stdout.write(json.dumps({"port": port, "authorities": authorities}) + "\n")
    sys.stdout.flush()


async def _serve(mutations: Mutations, tls: LiveTls, authorities: str) -> None:
    listener = Listener(AdmissionServer(mutations, tls, Metrics()).answer, Limits(), tls=tls.context)
    _listening(await listener.start("127.0.0.1", 0), authorities)
    await asyncio.to_thread(sys.stdin.read)
    await listener.stop()


def _serve_threads(mutations: Mutations, tls: LiveTls, authorities: str) -> None:
    class Reviews(Handler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            try:
                request = review.read(self.body())
                status, answer = 200, review.write(request, mutations.answer("reservation", request))
            except BadRequestError as error:
                status, answer = error.status, str(error).encode()
            self.answer(status, answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Reviews) as server:
        server.socket = tls.context.wrap_socket(server.socket, server_side=True)
        import threading  # noqa: PLC0415

        threading.Thread(target=server.serve_forever, daemon=True).start()
        _listening(server.server_port, authorities)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
