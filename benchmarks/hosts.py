"""`make bench-hosts`: what many hosts cost in one stack, over what one costs.

The hosts are machines of one real sshd on loopback. The engine is the real one, the command plugin its stand-in, so a
connection is a process of OpenSSH here and a goroutine of the official plugin elsewhere. The ratio is wall time of all
hosts over (hosts / parallelism) x wall time of one host, both without what an empty program costs. Everything shares
this machine's cores: with more hosts at once than cores, one host beside others takes longer than one alone, so the
parallelism is the number of cores unless PARALLEL says otherwise.

The engine writes the whole state after every step, and a file backend keeps it as one file: with N resources that is
N x N. A host is four resources, so 200 hosts write 800 times up to some MB; the measurement contains that.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.host_machines import jetson
from tests.support.host_stacks import LOGIN_KEY, HostsStack, ssh_host, tegra_stack
from tests.support.sshd import Machine, Sshd, find_sshd, serving

HOSTS = int(os.environ.get("HOSTS", "200"))
PARALLEL = int(os.environ.get("PARALLEL", str(os.cpu_count() or 2)))
GOAL = 1.3


def main() -> None:
    """Measure and print the ratio."""
    if find_sshd() is None:
        sys.exit("This needs OpenSSH's server: apt-get install openssh-server")
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-benchmark-") as scratch:
        folder = Path(scratch)
        with serving(folder / "sshd") as server:
            _measure(folder, server)


def _measure(folder: Path, server: Sshd) -> None:
    empty = _seconds(folder / "empty", server, [])
    alone = _seconds(folder / "one", server, [jetson(server)]) - empty
    everything = _seconds(folder / "all", server, [jetson(server) for _ in range(HOSTS)]) - empty
    rounds = HOSTS / PARALLEL
    sys.stdout.write(
        f"{HOSTS} hosts, {PARALLEL} at once: {everything:.1f} s; one host: {alone:.1f} s; an empty program: "
        f"{empty:.1f} s.\nWall time over (hosts / parallelism) x one host: ratio {everything / (rounds * alone):.2f} "
        f"(goal at most {GOAL}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})\n"
    )


def _seconds(folder: Path, server: Sshd, machines: list[Machine]) -> float:
    """Wall time of a first `up` of these machines."""
    hosts = {f"jetson-{index}": ssh_host(server, machine) for index, machine in enumerate(machines)}
    stack = HostsStack(folder, tegra_stack({"none": {}}), {LOGIN_KEY: server.private_key})
    settings = tegra_stack(hosts)
    if not hosts:
        settings["platform"]["tegra_nodes"] = {"none": {"gpu_memory_mib": 1024}}
    stack.settings = settings
    begin = time.perf_counter()
    command = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--parallel", str(PARALLEL)]
    done = subprocess.run(
        [*command, "--stack", stack.name, "--cwd", str(stack.folder)],
        env=stack.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    took = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"pulumi up failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return took


if __name__ == "__main__":
    main()
