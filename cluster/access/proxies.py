"""Which proxy an API server is reached through: the one that kubectl and Pulumi's provider take.

The HTTP client's own reading of the environment differs: it takes the proxy to loopback addresses too, also to the
simulator's, knows no networks in NO_PROXY (`10.0.0.0/8`), and takes ALL_PROXY.
"""

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

_WITH_SCHEME = re.compile(r"(https?|socks5h?)://", re.IGNORECASE)
_PORT = re.compile(r"(?P<host>[^:]*|\[[^\]]*\]):(?P<port>\d+)")


def proxy_of(server: str, environment: Mapping[str, str]) -> str | None:
    """The proxy's address, as Go reads the environment (golang.org/x/net/http/httpproxy); None for a direct way."""
    address = urlsplit(server)
    name = f"{address.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    host = address.hostname or ""
    if not proxy or host == "localhost" or _passed_by(host, address.port, environment):
        return None
    return proxy if _WITH_SCHEME.match(proxy) else f"http://{proxy}"


def _passed_by(host: str, port: int | None, environment: Mapping[str, str]) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        ip = None
    if ip is not None and ip.is_loopback:
        return True
    entries = (environment.get("NO_PROXY") or environment.get("no_proxy") or "").lower().split(",")
    return any(_covers(entry.strip(), host, ip, str(port or 443)) for entry in entries)


def _covers(entry: str, host: str, ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: str) -> bool:
    if entry in {"", "*"}:
        return entry == "*"
    if match := _PORT.fullmatch(entry):
        if match["port"] != port:
            return False
        entry = match["host"].strip("[]")
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        domain = entry.removeprefix("*").removeprefix(".")
        return ip is None and (host.endswith(f".{domain}") or (host == domain and entry == domain))
    return ip is not None and ip in network
