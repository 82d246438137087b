"""The language hosts that are built here, with an engine that only counts."""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from typing_extensions import override

import toolchain
from toolchain.program import Program
from toolchain.programs import LANGUAGE_NODEJS, PACKAGE_HOST

_OVER_SECONDS = 3
_ENDS_SECONDS = 30


@dataclass
class _Engine(grpc.GenericRpcHandler):
    """Knows no call, as the real one knows none of health: whoever is answered so takes it for alive.

    Attributes:
        asked: the calls, in their order.
    """

    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(1), handlers=[self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        self.asked.append(handler_call_details.method)


@pytest.fixture
def engine() -> Iterator[_Engine]:
    made = _Engine()
    made.server.start()
    yield made
    made.server.stop(None).wait()


@pytest.mark.parametrize("program", [PACKAGE_HOST, LANGUAGE_NODEJS], ids=lambda program: program.name)
def test_a_host_asks_its_engine_now_and_then_and_ends_with_it(program: Program, engine: _Engine) -> None:
    [installed] = toolchain.install([program]).values()
    if toolchain.install_located([program])[program].origin is not toolchain.Origin.BUILT:
        pytest.skip("it is not built here")
    with subprocess.Popen([installed, f"127.0.0.1:{engine.port}"], stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            assert int(host.stdout.readline()) > 0, "its own port"
            time.sleep(_OVER_SECONDS)
            assert 0 < len(engine.asked) <= _OVER_SECONDS + 1, "it would take half a processor from whatever it starts"
            assert set(engine.asked) == {"/grpc.health.v1.Health/Check"}
            engine.server.stop(None).wait()
            host.wait(_ENDS_SECONDS)
        finally:
            host.kill()
