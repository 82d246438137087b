"""`make bench-hosts`: what many hosts cost in one stack, or in STACKS of them, over what one costs.

The hosts are machines of one real sshd on loopback. The engine is the real one, the command plugin its stand-in, so a
connection is a process of OpenSSH here and a goroutine of the official plugin elsewhere. The ratio is wall time of all
hosts over (hosts / parallelism) x wall time of one host, both without what an empty program costs. Everything shares
this machine's cores: with more hosts at once than cores, one host beside others takes longer than one alone, so the
parallelism is the number of cores unless PARALLEL says otherwise.

The engine writes the whole state before and after every step: with N resources that is N x N. A host is four resources
and about 24 KiB of state: the connection with its key, of which each resource keeps two copies, the Python SDK's stack
traces, the probe's answer. The SDK's own wait for outputs is N x N too (`wait_for_rpcs`, pulumi 3.272). The measurement
contains both. STACKS shares the hosts among so many stacks, one after the other. GOGC is 400 unless it says otherwise,
as docs/hosts.md advises for many hosts.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.result import QUICK, Result, show, tell
from testbed.hosts.machines import jetson
from testbed.hosts.sshd import Machine, Sshd, find_sshd, serving
from testbed.hosts.stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack

HOSTS = int(os.environ.get("HOSTS", "10" if QUICK else "200"))
PARALLEL = int(os.environ.get("PARALLEL", str(os.cpu_count() or 2)))
STACKS = int(os.environ.get("STACKS", "1"))
GOGC = os.environ.get("GOGC", "400")
GOAL = 1.3


def results() -> Iterator[Result]:
    """Measure behind one sshd."""
    if find_sshd() is None:
        sys.exit("This needs OpenSSH's server: apt-get install openssh-server")
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-benchmark-") as scratch:
        folder = Path(scratch)
        with serving(folder / "sshd") as server:
            yield _measure(folder, server)


@dataclass(frozen=True)
class _Cost:
    """What a first `up` costs: wall time, and the processors' time on both sides.

    Attributes:
        wall_seconds: from start to end.
        here_seconds: of the engine, the program, the plugin and its SSH clients.
        hosts_seconds: of the logins on the hosts.
        state_bytes: of the state in the end.
    """

    wall_seconds: float
    here_seconds: float
    hosts_seconds: float
    state_bytes: int


def _measure(folder: Path, server: Sshd) -> Result:
    # Before and after, so that a machine whose other work changes meanwhile does not flatter or spoil the ratio alone.
    before = _single(folder / "before", server)
    machines = [jetson(server) for _ in range(HOSTS)]
    everything = [_cost(folder / f"all-{number}", server, machines[number::STACKS]) for number in range(STACKS)]
    after = _single(folder / "after", server)
    empties, ones = zip(before, after, strict=True)
    empty_wall, empty_here = (
        fmean(cost.wall_seconds for cost in empties),
        fmean(cost.here_seconds for cost in empties),
    )
    # What a stack more costs counts: only one empty program is taken off.
    wall = sum(cost.wall_seconds for cost in everything) - empty_wall
    here = sum(cost.here_seconds for cost in everything) - empty_here
    hosts = sum(cost.hosts_seconds for cost in everything)
    one = fmean(cost.wall_seconds for cost in ones) - empty_wall
    one_here = fmean(cost.here_seconds for cost in ones) - empty_here
    cores = os.cpu_count() or 1
    parts = {
        "all hosts": f"{show(wall)} s",
        "one host": f"{show(one)} s",
        "empty program": f"{show(empty_wall)} s",
        "processor time per host here": f"{show(here / HOSTS)} s (one alone {show(one_here)} s)",
        "on the hosts": f"{show(hosts / HOSTS)} s",
        f"least that {cores} cores need": f"{show((here + hosts) / cores)} s",
        "state per host": f"{sum(cost.state_bytes for cost in everything) / HOSTS / 1024:.1f} KiB",
    }
    stacks = "" if STACKS == 1 else f" in {STACKS} stacks"
    name = f"{HOSTS} hosts{stacks}, {PARALLEL} at once, over (hosts / parallelism) x one host"
    return Result(name, "x", (wall / (HOSTS / PARALLEL * one),), GOAL, parts=parts)


def _single(folder: Path, server: Sshd) -> tuple[_Cost, _Cost]:
    """What an empty program costs, and one host."""
    return _cost(folder / "empty", server, []), _cost(folder / "one", server, [jetson(server)])


def _cost(folder: Path, server: Sshd, machines: list[Machine]) -> _Cost:
    """What a first `up` of these machines costs."""
    hosts = {f"jetson-{index}": ssh_host(server, machine) for index, machine in enumerate(machines)}
    stack = HostsStack(folder, tegra_stack({"none": {}}), {LOGIN_KEY: server.private_key})
    settings = tegra_stack(hosts)
    if not hosts:
        settings["platform"]["tegra_nodes"] = {"none": {"gpu_memory_mib": 1024}}
    stack.settings = settings
    log = folder / "log"
    command = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--parallel", str(PARALLEL)]
    logins = server.processor_seconds()
    begin = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--stack", stack.name, "--cwd", str(stack.folder)],
            env=stack.environment | {"GOGC": GOGC},
            stdout=output,
            stderr=output,
        )
        _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"pulumi up failed:\n{log.read_text(encoding='utf-8', errors='replace')[-8000:]}")
    [state] = (folder / "state").rglob(f"stacks/**/{stack.name}.json")
    used = server.processor_seconds() - logins
    return _Cost(took, usage.ru_utime + usage.ru_stime, used, state.stat().st_size)


if __name__ == "__main__":
    tell(results())
