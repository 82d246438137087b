"""Asks CUDA's driver library for the GPUs and their memory: one JSON object on stdout.

Run as `main()` by `agents.host.look.cuda` in its own process. No context is made, so nothing is allocated on a GPU.
Functions and error codes: CUDA Driver API, `cuda.h`.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any

from agents.host.look.driver_child import answer

_NAME_BYTES = 256
_UUID_BYTES = 16


class _CudaError(Exception):
    pass


def main() -> None:
    """Print `{"ok": true, "gpus": [...]}` or `{"ok": false, "reason": str}`; the argument is the library's path."""
    answer(_read)


def _read(arguments: list[str]) -> dict[str, Any]:
    # As the kernel lists them, and all of them, whatever the login's environment says.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        library = ctypes.CDLL(arguments[0])
    except OSError as error:
        return {"ok": False, "reason": f"CUDA's library can't be loaded: {error}"}
    try:
        return {"ok": True, "gpus": _gpus(library)}
    except _CudaError as error:
        return {"ok": False, "reason": str(error)}


def _gpus(library: ctypes.CDLL) -> list[dict[str, Any]]:
    _call(library, "cuInit", ctypes.c_uint(0))
    count = ctypes.c_int()
    _call(library, "cuDeviceGetCount", ctypes.byref(count))
    return [_gpu(library, index) for index in range(count.value)]


def _gpu(library: ctypes.CDLL, index: int) -> dict[str, Any]:
    device = ctypes.c_int()
    _call(library, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _call(library, "cuDeviceGetName", name, ctypes.c_int(_NAME_BYTES), device)
    gpu: dict[str, Any] = {"name": name.value.decode("utf-8", "replace"), "why_no_memory": None}
    number = ctypes.create_string_buffer(_UUID_BYTES)
    try:
        _call(library, "cuDeviceGetUuid", number, device)
        gpu["uuid"] = str(uuid.UUID(bytes=number.raw)) if any(number.raw) else None
    except _CudaError:
        gpu["uuid"] = None
    memory = ctypes.c_size_t()
    try:
        # The first form counts in 32 bits.
        _call(library, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        gpu["memory_bytes"] = memory.value
    except _CudaError as error:
        gpu.update(memory_bytes=None, why_no_memory=str(error))
    return gpu


def _call(library: ctypes.CDLL, name: str, *arguments: Any) -> None:  # noqa: ANN401 - what ctypes takes
    try:
        function = getattr(library, name)
    except AttributeError:
        raise _CudaError(f"CUDA's library has no {name}") from None
    code = function(*arguments)
    if code:
        raise _CudaError(f"{name} fails: {_error_name(library, code)} (CUDA error {code})")


def _error_name(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    try:
        library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
    except AttributeError:
        return "unknown"
    return (text.value or b"unknown").decode("utf-8", "replace")
