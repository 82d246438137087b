"""The GPUs of a host with the memory of each: which source is believed, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.host.look.board import Board
    from agents.host.look.cuda import Cuda, CudaGpu
    from agents.host.look.nvml import Nvml
    from agents.host.root import Root

_PREFIX = "GPU-"


@dataclass(frozen=True)
class _Gpu:
    index: int
    uuid: str | None
    name: str
    memory_mib: int | None
    memory_source: str | None
    memory_reasons: tuple[str, ...]

    def with_memory(self, source: str, name: str, memory_mib: int | None, why_not: str | None) -> _Gpu:
        """The same GPU after a source was heard; the first that tells a number is believed."""
        reason = (
            f"{name} tells {memory_mib} MiB" if memory_mib else f"{name} does not tell it: {why_not or 'it says 0'}"
        )
        reasons = (*self.memory_reasons, reason)
        if self.memory_mib or not memory_mib:
            return replace(self, memory_reasons=reasons)
        return replace(self, memory_mib=memory_mib, memory_source=source, memory_reasons=reasons)


def listed(root: Root, board: Board, nvml: Nvml, cuda: Cuda, *, total_mib: int) -> list[dict[str, Any]]:
    """The GPUs of the answer, each with its memory in MiB, where that number comes from, and why.

    NVML lists them; without it the kernel's driver, then CUDA; a Tegra has one in any case. NVML's memory comes first,
    then CUDA's. A GPU that shares the host's memory never has more than MemTotal, and has MemTotal where neither
    tells: firmware's part of the memory is outside it, and product names promise more.
    """
    gpus = _by_nvml(nvml) or _by_driver(root, nvml) or _by_cuda(nvml, cuda) or _by_board(board, nvml)
    gpus = [_with_cuda(gpu, cuda, alone=len(gpus) == 1) for gpu in gpus]
    if board.shares_memory and total_mib:
        gpus = [_at_most_shared(gpu, total_mib) for gpu in gpus]
    return [asdict(gpu) for gpu in gpus]


def _by_nvml(nvml: Nvml) -> list[_Gpu]:
    return [
        _Gpu(gpu.index, gpu.uuid, gpu.name, None, None, ()).with_memory(
            "nvml", "NVML", gpu.memory_mib, gpu.why_no_memory
        )
        for gpu in nvml.gpus
    ]


def _by_driver(root: Root, nvml: Nvml) -> list[_Gpu]:
    gpus = []
    for index, path in enumerate(root.glob("/proc/driver/nvidia/gpus/*/information")):
        pairs = (line.partition(":") for line in (root.read_text(path) or "").splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        # The driver prints question marks while the GPU is not initialised.
        uuid = facts.get("GPU UUID")
        real_uuid = None if not uuid or "?" in uuid else uuid
        gpus.append(_without_nvml(index, real_uuid, facts.get("Model") or "NVIDIA GPU", nvml))
    return gpus


def _by_cuda(nvml: Nvml, cuda: Cuda) -> list[_Gpu]:
    return [
        _without_nvml(index, gpu.uuid and f"{_PREFIX}{gpu.uuid}", gpu.name, nvml) for index, gpu in enumerate(cuda.gpus)
    ]


def _by_board(board: Board, nvml: Nvml) -> list[_Gpu]:
    if board.kind != "tegra":
        return []
    return [_without_nvml(0, None, f"{board.generation or 'Tegra'} integrated GPU", nvml)]


def _without_nvml(index: int, uuid: str | None, name: str, nvml: Nvml) -> _Gpu:
    reason = nvml.reason or "it lists no GPU"
    return _Gpu(index, uuid, name, None, None, (f"NVML does not tell it: {reason}",))


def _with_cuda(gpu: _Gpu, cuda: Cuda, *, alone: bool) -> _Gpu:
    if gpu.memory_mib:
        return gpu
    cuda_gpu = _same(gpu, cuda, alone=alone)
    why_not = cuda.reason or (cuda_gpu.why_no_memory if cuda_gpu else "it lists no GPU with this UUID")
    return gpu.with_memory("cuda", "CUDA", cuda_gpu.memory_mib if cuda_gpu else None, why_not)


def _same(gpu: _Gpu, cuda: Cuda, *, alone: bool) -> CudaGpu | None:
    """The GPU among CUDA's: the only one of both, else by UUID, before which Orin's NVML puts no `GPU-`."""
    if alone and len(cuda.gpus) == 1:
        return cuda.gpus[0]
    bare = (gpu.uuid or "").replace(_PREFIX, "", 1)
    return next((cuda_gpu for cuda_gpu in cuda.gpus if cuda_gpu.uuid and cuda_gpu.uuid == bare), None)


def _at_most_shared(gpu: _Gpu, total_mib: int) -> _Gpu:
    reasons = (*gpu.memory_reasons, f"the GPU shares the machine's memory, whose MemTotal is {total_mib} MiB")
    if gpu.memory_mib and gpu.memory_mib <= total_mib:
        return replace(gpu, memory_reasons=reasons)
    return replace(gpu, memory_mib=total_mib, memory_source="meminfo", memory_reasons=reasons)
