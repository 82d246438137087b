"""Asks NVML in a process of its own, since a driver's library may crash or hang: one JSON object on stdout.

Run as `main()` by `agents.host.nvml`, with the library's folder in LD_LIBRARY_PATH: `pynvml` loads `libnvidia-ml.so.1`
through the ordinary loader only.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pynvml


def main() -> None:
    """Prints `{"ok": true, "driver": str|null, "gpus": [...]}` or `{"ok": false, "reason": str}`."""
    # Whatever the library itself prints must not get between.
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, json.dumps(_read()).encode())


def _read() -> dict[str, Any]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"ok": False, "reason": f"NVML does not start: {error} (NVML error {error.value})"}
    try:
        return {"ok": True, "driver": _driver(), "gpus": _gpus()}
    except pynvml.NVMLError as error:
        return {"ok": False, "reason": f"NVML can't list the GPUs: {error} (NVML error {error.value})"}
    finally:
        pynvml.nvmlShutdown()


def _driver() -> str | None:
    try:
        return _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _gpus() -> list[dict[str, Any]]:
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu: dict[str, Any] = {"index": index, "name": _text(pynvml.nvmlDeviceGetName(handle))}
        try:
            gpu["uuid"] = _text(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            gpu["uuid"] = None
        try:
            gpu["memory_bytes"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        except pynvml.NVMLError:
            # NOT_SUPPORTED where the GPU shares the host's memory.
            gpu["memory_bytes"] = None
        gpus.append(gpu)
    return gpus


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
