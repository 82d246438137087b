"""Where a program's servers are put, and who finds them."""

import asyncio
import ipaddress
import os
import platform
import signal
import socket
import struct
import sys
from functools import partial
from pathlib import Path

import pytest

from simulator.pods import launcher
from simulator.pods.addresses import Answers, any_address
from simulator.pods.process import start
from testbed.waiting import eventually

OURS = "127.64.1.2"


def v4(host: str, port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(host) + b"\0" * 8


def v6(host: str, port: int) -> bytes:
    return (
        struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, host)
    ) + b"\0" * 4


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])  # noqa: S104 (what a program asks for)
def test_a_server_for_everybody_or_for_its_machine_gets_the_pods_address(host: str) -> None:
    assert Answers(OURS).moved(v4(host, 9443), listens=True) == v4(OURS, 9443)


@pytest.mark.parametrize("host", ["::", "::1", "::ffff:127.0.0.1"])
def test_the_same_for_ipv6(host: str) -> None:
    assert Answers(OURS).moved(v6(host, 9443), listens=True) == v6(f"::ffff:{OURS}", 9443)


@pytest.mark.parametrize(
    "sockaddr",
    [
        v4("127.0.0.1", 0),
        v4("192.0.2.1", 80),
        v6("2001:db8::1", 80),
        struct.pack("=H", socket.AF_UNIX) + b"/tmp/x\0",
        b"",
    ],
)
def test_a_port_of_the_kernels_choice_and_other_addresses_stay(sockaddr: bytes) -> None:
    assert Answers(OURS).moved(sockaddr, listens=True) == sockaddr


def test_only_who_connects_to_a_port_of_its_own_is_led_to_the_pods_address() -> None:
    answers = Answers(OURS)
    assert answers.moved(v4("127.0.0.1", 9443), listens=False) == v4("127.0.0.1", 9443), "the API server may be there"
    answers.moved(v6("::", 9443), listens=True)
    assert answers.moved(v4("127.0.0.1", 9443), listens=False) == v4(OURS, 9443)
    assert answers.moved(v4("127.0.0.1", 6443), listens=False) == v4("127.0.0.1", 6443)
    assert answers.moved(v4("192.0.2.1", 9443), listens=False) == v4("192.0.2.1", 9443)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (b"/etc/config/config.yaml", b"etc/config/config.yaml\0"),
        (b"/var/run/secrets", b"var/run/secrets\0"),
        (b"/var/run/secrets/token", b"var/run/secrets/token\0"),
        (b"/var/run/secretsandmore", b"/var/run/secretsandmore"),
        (b"/etc/config/config.yaml.old", b"/etc/config/config.yaml.old"),
        (b"/var/run", b"/var/run"),
        (b"var/run/secrets", b"var/run/secrets"),
        (b"", b""),
    ],
)
def test_a_path_below_a_mount_is_the_pods_own_and_no_other_is(path: bytes, own: bytes) -> None:
    assert Answers(OURS, mounts=["/var/run/secrets/", "/etc/config/config.yaml"]).own_file(path) == own


def test_addresses_are_loopback_and_not_the_machines_own() -> None:
    some = {any_address() for _ in range(200)}
    assert len(some) > 190
    assert all(ipaddress.ip_address(address).is_loopback for address in some)
    assert "127.0.0.1" not in some


def test_other_systems_are_told_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "they need Linux on x86_64 or aarch64, this is" in str(launcher.unavailable())


PROGRAM = """
import os, socket, sys, time
server = socket.create_server(("", 9443), family=socket.AF_INET6, dualstack_ipv6=True)
print(server.getsockname()[0], flush=True)
socket.create_connection(("127.0.0.1", 9443))
print("reached itself", flush=True)
if os.fork() == 0:
    print("child", os.getpid(), flush=True)
time.sleep(600)
"""

here = pytest.mark.skipif(launcher.unavailable() is not None, reason=f"no programs here: {launcher.unavailable()}")


@here
def test_two_programs_with_one_port_run_beside_each_other_and_their_children_end_with_them(tmp_path: Path) -> None:
    async def run() -> None:
        command = [sys.executable, "-c", PROGRAM]
        running = [await start(command, {}, tmp_path, tmp_path / f"{number}.log") for number in range(2)]
        for number, process in enumerate(running):
            log = tmp_path / f"{number}.log"
            await asyncio.to_thread(eventually, partial(_child, log), within_seconds=20)
            child = _child(log)
            assert log.read_text().splitlines()[:2] == [f"::ffff:{process.address}", "reached itself"]
            await process.stop(5)
            await asyncio.to_thread(eventually, partial(_gone, child), within_seconds=5)
            assert await process.ended() == -signal.SIGTERM

    asyncio.run(run())


READER = """
import ctypes, os, signal, socket, sys
print(socket.gethostname(), os.uname().machine, flush=True)
place = "/var/run/secrets/of-a-test/namespace"
print(os.stat(place).st_size, open(place).read(), os.listdir("/var/run/secrets/of-a-test"), flush=True)
# The call of programs that were built for an older glibc.
old_stat = [4, place.encode(), ctypes.create_string_buffer(512)]
print(os.uname().machine == "x86_64" and ctypes.CDLL(None).syscall(*old_stat), flush=True)
print(os.path.exists("/etc/passwd"), os.path.exists("/var/run/secrets/of-another"), flush=True)
# Signals interrupt calls that wait for their answer.
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(500):
    open(place).close()
signal.setitimer(signal.ITIMER_REAL, 0)
print("all answered", flush=True)
"""


@here
def test_a_program_has_its_pods_name_what_that_mounts_and_this_machines_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "var/run/secrets/of-a-test"
    folder.mkdir(parents=True)
    (folder / "namespace").write_text("kai")
    log = tmp_path / "log"

    async def run() -> int:
        command = [sys.executable, "-c", READER]
        return await (await start(command, {}, tmp_path, log, "binder-1", ["/var/run/secrets/of-a-test"])).ended()

    assert asyncio.run(run()) == 0, log.read_text()
    name, *rest = log.read_text().splitlines()
    assert name == f"binder-1 {os.uname().machine}"
    old_stat = "0" if platform.machine() == "x86_64" else "False"
    assert rest == ["3 kai ['namespace']", old_stat, "True False", "all answered"]


@here
def test_a_program_that_does_not_exist_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def run() -> int:
        return await (await start([str(tmp_path / "none")], {}, tmp_path, log)).ended()

    assert asyncio.run(run()) == 1
    assert f"{tmp_path / 'none'} can't be executed: No such file or directory" in log.read_text()


def _child(log: Path) -> int:
    return next((int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("child")), 0)


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
