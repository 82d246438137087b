"""Stands in for KAI's resourcereservation, which no package registry has: the same calls in the same order, its words.

KAI's is a Go program (KAI v0.18, cmd/resourcereservation and pkg/resourcereservation). It asks NVML by go-nvml, which
calls an error by its constant while no library is loaded, and as the library itself does from then on (go-nvml
v0.13.0-1, pkg/nvml/return.go). Here pynvml asks: the same loader finds the same library.
"""

import json
import os
import signal
import ssl
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pynvml

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANNOTATION = "run.ai/reserve_for_gpu_index"


class _FailedError(Exception):
    pass


def main() -> None:
    """Tell the GPU on the own pod, and wait for the end."""
    # Nothing ends the first process of a container but what it asks for.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        _reserve()
    except _FailedError as error:
        _say(f"Error while running the app: {error}")
        sys.exit(1)
    signal.sigwait({signal.SIGTERM})


def _reserve() -> None:
    annotations = _own_pod("GET", "could not find pod")["metadata"].get("annotations", {})
    if _ANNOTATION in annotations:
        return
    _say("Looking for GPU device id for pod")
    uuid = _uuid()
    _say("Found GPU device")
    _own_pod("PATCH", "could not patch pod", {"metadata": {"annotations": {_ANNOTATION: uuid}}})
    _say("Pod was updated with GPU device UUID")


def _uuid() -> str:
    doing = "initialize NVML"
    try:
        pynvml.nvmlInit()
        doing = "get device count"
        count = pynvml.nvmlDeviceGetCount()
        _say(f"Found {count} GPU devices")
        if count != 1:
            raise _FailedError(f"found {count} devices, 1 was expected")
        doing = "get device handle"
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        doing = "get device uuid"
        uuid: str = pynvml.nvmlDeviceGetUUID(device)
    except pynvml.NVMLError as error:
        words = "ERROR_LIBRARY_NOT_FOUND" if pynvml.nvmlLib is None else error
        raise _FailedError(f"unable to {doing}: {words}") from error
    return uuid


def _own_pod(method: str, otherwise: str, change: object = None) -> Any:  # noqa: ANN401 - JSON
    of = os.environ
    request = urllib.request.Request(
        f"https://{of['KUBERNETES_SERVICE_HOST']}:{of['KUBERNETES_SERVICE_PORT']}"
        f"/api/v1/namespaces/{of['POD_NAMESPACE']}/pods/{of['POD_NAME']}",
        data=json.dumps(change).encode() if change else None,
        headers={
            "Authorization": f"Bearer {(_ACCOUNT / 'token').read_text(encoding='ascii')}",
            "Content-Type": "application/merge-patch+json",
        },
        method=method,
    )
    trusted = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:  # noqa: S310 - https
            return json.load(answer)
    except OSError as error:
        raise _FailedError(f"{otherwise}. {error}") from error


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the pod's log


if __name__ == "__main__":
    main()
