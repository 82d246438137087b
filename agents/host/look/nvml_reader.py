"""Asks NVML: one JSON object on stdout.

Run as `main()` by `agents.host.look.nvml` in its own process, with the library's folder in LD_LIBRARY_PATH: `pynvml`
loads `libnvidia-ml.so.1` through the ordinary loader only.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from agents.host.look.driver_child import answer


def main() -> None:
    """Print `{"ok": true, "driver": str|null, "gpus": [...]}` or `{"ok": false, "reason": str}`.

    The argument is the library's path, for a prepared root: where the loader can't use it, it finds this machine's.
    """
    answer(_read)


def _read(arguments: list[str]) -> dict[str, Any]:
    try:
        if arguments:
            ctypes.CDLL(arguments[0])
    except OSError as error:
        return {"ok": False, "reason": f"NVML's library can't be loaded: {error}"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"ok": False, "reason": f"NVML does not start: {_reason(error)}"}
    try:
        return {"ok": True, "driver": _driver(), "gpus": _gpus()}
    except pynvml.NVMLError as error:
        return {"ok": False, "reason": f"NVML can't list the GPUs: {_reason(error)}"}
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
        gpu: dict[str, Any] = {"index": index, "name": _text(pynvml.nvmlDeviceGetName(handle)), "why_no_memory": None}
        try:
            gpu["uuid"] = _text(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            gpu["uuid"] = None
        try:
            gpu["memory_bytes"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        except pynvml.NVMLError as error:
            # NOT_SUPPORTED where the GPU shares the host's memory.
            gpu.update(memory_bytes=None, why_no_memory=_reason(error))
        gpus.append(gpu)
    return gpus


def _reason(error: pynvml.NVMLError) -> str:
    return f"{error} (NVML error {error.value})"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
