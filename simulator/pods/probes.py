"""The probes that a container declares."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import httpx2

from simulator.operands.world import Object
from simulator.pods.images import ProgramError


def port_of(container: Object, port: int | str) -> int:
    """A port's number: of a name, what the container says.

    Raises:
        ProgramError: no port has that name.
    """
    for declared in container.get("ports") or ():
        if declared.get("name") == port:
            return int(declared["containerPort"])
    try:
        return int(port)
    except ValueError:
        raise ProgramError(f"container {container['name']} has no port called {port}") from None


def check(container: Object) -> None:
    """Refuse probes that are not understood here.

    Raises:
        ProgramError: there is one, or a port has no number.
    """
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        match container.get(kind):
            case None:
                pass
            case {"httpGet": {"port": port}} | {"tcpSocket": {"port": port}} if kind != "startupProbe":
                port_of(container, port)
            case _:
                raise ProgramError(
                    f"container {container['name']} has a {kind} that is not understood here: only readiness and "
                    "liveness are, by httpGet or tcpSocket"
                )


async def verdicts(container: Object, probe: Object, address: str) -> AsyncGenerator[bool, None]:
    """What the probe makes of the process, each time that it is asked: changes take as many answers as it says."""
    await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
    good: bool | None = None
    same = 0
    while True:
        answer = await _answer(container, probe, address)
        same = same + 1 if answer is good else 1
        good = answer
        if same >= int(probe.get("successThreshold" if good else "failureThreshold") or (1 if good else 3)):
            yield good
        await asyncio.sleep(probe.get("periodSeconds") or 10)


async def _answer(container: Object, probe: Object, address: str) -> bool:
    within_seconds = float(probe.get("timeoutSeconds") or 1)
    with suppress(OSError, TimeoutError, httpx2.HTTPError):
        match probe:
            case {"httpGet": get}:
                place = f"{address}:{port_of(container, get['port'])}/{str(get.get('path') or '').lstrip('/')}"
                # As the kubelet: a certificate is not checked.
                async with httpx2.AsyncClient(verify=False, trust_env=False, timeout=within_seconds) as client:
                    response = await client.get(f"{str(get.get('scheme') or 'HTTP').lower()}://{place}")
                    return 200 <= response.status_code < 400  # noqa: PLR2004 (what the kubelet takes for healthy)
            case {"tcpSocket": socket}:
                _, writer = await asyncio.wait_for(
                    asyncio.open_connection(address, port_of(container, socket["port"])), within_seconds
                )
                writer.close()
                return True
            case _:
                pass
    return False
