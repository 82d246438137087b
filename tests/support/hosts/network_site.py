"""Two machines in network namespaces of their own, where this machine allows them.

    here ---- outer link ---- near ---- inner link ---- far

`far` can be reached from here only through a login on `near`: nothing is routed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.hosts.sshd import Sshd, serving

_NETWORKS = range(1, 256)
"""Of 198.18.0.0/16; the first is the real node's (tests/support/pods/real_node.py)."""


class NoNamespacesError(Exception):
    """This machine makes no network namespaces; the text says why."""


@dataclass(frozen=True)
class Site:
    """Both machines' servers.

    Attributes:
        near: an sshd that is reached directly.
        near_address: of it.
        far: an sshd that only `near` reaches.
        far_addresses: of it; each may be another machine.
        outer_link: the interface here of the link to `near`.
    """

    near: Sshd
    near_address: str
    far: Sshd
    far_addresses: tuple[str, ...]
    outer_link: str

    def cut(self) -> None:
        """Take the link to `near` down: whatever is sent is lost, and nobody is told."""
        _ip("link", "set", self.outer_link, "down")

    def mend(self) -> None:
        """Take it up again."""
        _ip("link", "set", self.outer_link, "up")


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Make both machines, and remove them.

    Raises:
        NoNamespacesError: if this machine does not let us.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoNamespacesError("network namespaces need root and the program `ip` (package iproute2)")
    near, far = (f"kai-{os.getpid()}-{name}" for name in ("near", "far"))
    network = _free_network()
    outer_link, inner_link = f"kai{os.getpid()}o", f"kai{os.getpid()}i"
    far_addresses = tuple(f"{network}.{last}" for last in range(18, 24))
    with ExitStack() as stack:
        for name in (near, far):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _link(outer_link, "", [f"{network}.1"], near, [f"{network}.2"])
        stack.callback(_ip, "link", "del", outer_link)
        # Whatever this machine does with what it has no route for, perhaps through a proxy that takes every connection.
        _ip("route", "add", "unreachable", f"{network}.16/28")
        stack.callback(_ip, "route", "del", "unreachable", f"{network}.16/28")
        _link(inner_link, near, [f"{network}.17"], far, far_addresses)
        folder.mkdir()
        near_server = stack.enter_context(serving(folder / "near", _enter(near)))
        far_server = stack.enter_context(serving(folder / "far", _enter(far)))
        yield Site(near_server, f"{network}.2", far_server, far_addresses, outer_link)


def _enter(namespace: str) -> Sequence[str]:
    return ("ip", "netns", "exec", namespace)


def _link(name: str, here: str, addresses: Sequence[str], there: str, there_addresses: Sequence[str]) -> None:
    inside = ("-n", here) if here else ()
    _ip(*inside, "link", "add", name, "type", "veth", "peer", "name", name, "netns", there)
    for where, known_addresses in ((inside, addresses), (("-n", there), there_addresses)):
        for address in known_addresses:
            _ip(*where, "address", "add", f"{address}/28", "dev", name)
        _ip(*where, "link", "set", name, "up")


def _free_network() -> str:
    """The first 24 bits of addresses that nobody here has: a part of what RFC 2544 keeps for tests."""
    used = subprocess.run(["ip", "-4", "-o", "address"], check=True, capture_output=True, text=True).stdout
    networks = (f"198.18.{_NETWORKS[(os.getpid() + number) % len(_NETWORKS)]}" for number in _NETWORKS)
    return next(network for network in networks if f" {network}." not in used)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NoNamespacesError(f"`ip {' '.join(arguments)}` fails: {done.stderr.strip()}")
