"""What a pod asks of GPUs, as KAI reads its annotations and resources, and what KAI's admission refuses.

KAI v0.17.0 pkg/binder/plugins/gpusharing/gpu-request (validation) and pkg/scheduler/api/pod_info (reading);
`nvidia.com/container.NAME.*` are the annotations of v0.18 (docs/gpu-sharing).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from fractions import Fraction
from typing import Any

from gpu_sharing.quantities import MIB, QuantityError, quantity

SCHEDULER = "kai-scheduler"
"""`schedulerName` of KAI's pods, unless its Config says otherwise (KAI v0.17.0 pkg/common/constants)."""
GPU = "nvidia.com/gpu"
TIME_SLICE = "nvidia.com/gpu.shared"
"""What the device plugin advertises in place of GPUs where it slices time with `renameByDefault`. No GPU to KAI."""
MIG_PREFIX = "nvidia.com/mig-"
GPU_MEMORY = "gpu-memory"
"""MiB, without a unit."""
GPU_FRACTION = "gpu-fraction"
NUM_DEVICES = "gpu-fraction-num-devices"
GPU_GROUP = "runai-gpu-group"
"""Label by which KAI remembers on which GPU a pod with a fraction is; with several devices, one each below it."""
COMPUTE_MODE = "kai.scheduler/gpu-compute-sharing-mode"
_MPS = "mps"
_OF_PODS = frozenset({"cpu", "memory"})
"""What a pod can ask for as a whole."""
_OF_CONTAINER = re.compile(
    r"nvidia\.com/container\.(?P<container>.+)\.(?P<key>gpu-memory\.request|gpu-memory\.limit|gpu-compute\.mode)"
)
_DIGITS, _HEX_DIGITS = r"[0-9](?:_?[0-9])*", r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEXADECIMAL = re.compile(rf"[+-]?0[xX](?:_?{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}")
"""Go's floating-point numbers. KAI takes them all (strconv.ParseFloat): one that is not read here would be a share of
which nobody is told."""
_MIG_SLICE = re.compile(r"nvidia\.com/mig-(\d+)g\.\d+gb")


class RequestError(ValueError):
    """A pod asks for GPUs in a way that KAI's admission refuses, or that can't be read."""


@unique
class ComputeMode(StrEnum):
    """How pods of one GPU compute; those of different modes never share one (KAI v0.18 docs/gpu-sharing)."""

    TIME_SLICING = "time-slicing"
    SM_SHARING = "sm-sharing"


@dataclass(frozen=True)
class WholeGpus:
    """`nvidia.com/gpu`: GPUs that nobody else uses."""

    count: int


@dataclass(frozen=True)
class MemoryShare:
    """`gpu-memory`: so many MiB of each of its devices."""

    mib: int
    devices: int = 1
    mode: ComputeMode = ComputeMode.TIME_SLICING


@dataclass(frozen=True)
class FractionShare:
    """`gpu-fraction`: this part of each of its devices."""

    fraction: float
    devices: int = 1
    mode: ComputeMode = ComputeMode.TIME_SLICING


@dataclass(frozen=True)
class MigSlices:
    """`nvidia.com/mig-*`: slices of GPUs, by resource."""

    slices: tuple[tuple[str, int], ...]

    @property
    def charged_gpus(self) -> int:
        """What the queue is charged: the compute slices, so that `1g.5gb` is 1 (gpu_resource_requirment.go).

        KAI can't read a profile with an attribute (`1g.10gb.me`), and charges nothing for it.
        """
        return sum(int(read[1]) * count for name, count in self.slices if (read := _MIG_SLICE.fullmatch(name)))


GpuShare = MemoryShare | FractionShare
GpuRequest = WholeGpus | GpuShare | MigSlices


@dataclass(frozen=True)
class PodRequest:
    """Everything that a pod asks for.

    Attributes:
        gpu: of GPUs, None where it asks for none.
        cpu: cores.
        memory: bytes of the system's memory.
    """

    gpu: GpuRequest | None = None
    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)


def pod_request(pod: Mapping[str, Any]) -> PodRequest:
    """What a pod asks for.

    Args:
        pod: a manifest, or what the API server has of it: `metadata` and `spec` are read.

    Raises:
        RequestError: if KAI's admission would refuse the pod; the text says the value and what is allowed.
    """
    annotations = {str(key): str(value) for key, value in (pod.get("metadata", {}).get("annotations") or {}).items()}
    spec = pod.get("spec") or {}
    requested = _resources(spec)
    share = _share(annotations, spec)
    gpus, slices = requested.get(GPU, Fraction(0)), _mig_slices(requested)
    for name, count in ((GPU, gpus), *slices.items()):
        if count.denominator != 1 or count < 0:
            raise RequestError(f"{name} is {float(count):g}: give a whole number; a part of a GPU is a gpu-fraction")
    if share is not None and gpus:
        raise RequestError(
            f"{_named(annotations)} together with {GPU}: {gpus}. KAI refuses both in one pod: remove one of them."
        )
    whole = WholeGpus(int(gpus)) if gpus else None
    mig = MigSlices(tuple(sorted((name, int(count)) for name, count in slices.items()))) if slices else None
    if mig is not None and (whole or share):
        raise RequestError(f"{mig.slices[0][0]} together with another request for GPUs: remove one of them.")
    return PodRequest(share or whole or mig, requested.get("cpu", Fraction(0)), requested.get("memory", Fraction(0)))


def gpu_groups(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """The GPU groups that KAI put a pod on, from its labels (KAI v0.17.0 pkg/common/resources); empty before that."""
    labels = pod.get("metadata", {}).get("labels") or {}
    groups = {str(value) for name, value in labels.items() if name == GPU_GROUP or name.startswith(f"{GPU_GROUP}/")}
    return tuple(sorted(groups))


def _share(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> GpuShare | None:
    memory, fraction = annotations.get(GPU_MEMORY), annotations.get(GPU_FRACTION)
    of_container = _container_memory(annotations, spec)
    if memory is not None and fraction is not None:
        raise RequestError(f"{GPU_MEMORY} and {GPU_FRACTION} in one pod: KAI refuses both together, remove one of them")
    if memory is None and fraction is None and of_container is None:
        for name in (NUM_DEVICES, *((_MPS,) if annotations.get(_MPS) == "true" else ())):
            if name in annotations:
                raise RequestError(f"{name} without {GPU_MEMORY} or {GPU_FRACTION}: add one of them, or remove it")
        return None
    devices, mode = _devices(annotations.get(NUM_DEVICES)), _mode(annotations)
    # Beside a container's memory KAI leaves the fraction unread, in every mode (v0.18, gpu_sharing.go).
    if fraction is not None and of_container is None:
        return FractionShare(_fraction(fraction), devices, mode)
    return MemoryShare(_mib(memory) if memory is not None else of_container or 0, devices, mode)


def _mib(value: str) -> int:
    if not re.fullmatch(r"0*[0-9]{1,18}", value) or not (mib := int(value.lstrip("0") or 0)):
        raise RequestError(f"{GPU_MEMORY} is '{value}': give MiB as a whole number above 0, without a unit")
    return mib


def _fraction(value: str) -> float:
    plain = value.replace("_", "")
    if _DECIMAL.fullmatch(value):
        fraction = float(plain)
    elif _HEXADECIMAL.fullmatch(value):
        fraction = _of_hexadecimal(plain)
    else:
        fraction = 0
    if not 0 < fraction < 1:
        raise RequestError(f"{GPU_FRACTION} is '{value}': give a number above 0 and below 1, such as '0.25'")
    return fraction


def _of_hexadecimal(value: str) -> float:
    try:
        return float.fromhex(value)
    except OverflowError:
        return math.inf


def _devices(value: str | None) -> int:
    if value is None:
        return 1
    if not re.fullmatch(r"0*[0-9]{1,9}", value) or not (devices := int(value.lstrip("0") or 0)):
        raise RequestError(f"{NUM_DEVICES} is '{value}': give a whole number above 0")
    return devices


def _mode(annotations: Mapping[str, str]) -> ComputeMode:
    modes = {COMPUTE_MODE: annotations[COMPUTE_MODE]} if COMPUTE_MODE in annotations else {}
    modes |= {name: value for name, (_, key), value in _of_container(annotations) if key == "gpu-compute.mode"}
    for name, value in modes.items():
        if value not in set(ComputeMode):
            raise RequestError(f"{name} is '{value}': give {' or '.join(ComputeMode)}")
    return ComputeMode(next(iter(modes.values()), ComputeMode.TIME_SLICING))


def _container_memory(annotations: Mapping[str, str], spec: Mapping[str, Any]) -> int | None:
    """The whole MiB of v0.18's annotation, as KAI counts them (pkg/scheduler/api/pod_info); one at least."""
    amounts: dict[str, dict[str, int]] = {}
    for name, (container, key), value in _of_container(annotations):
        if key == "gpu-compute.mode":
            continue
        try:
            memory = quantity(value)
        except QuantityError as error:
            raise RequestError(f"{name}: {error}") from error
        if memory <= 0:
            raise RequestError(f"{name} is '{value}': give an amount of memory above 0, such as '4Gi'")
        amounts.setdefault(container, {})[key] = max(math.ceil(memory) // MIB, 1)
    if not amounts:
        return None
    if len(amounts) > 1:
        raise RequestError(f"GPU memory for the containers {', '.join(sorted(amounts))}: KAI takes one per pod")
    [(container, of_keys)] = amounts.items()
    names = [declared.get("name") for declared in _containers(spec)]
    if container not in names:
        raise RequestError(f"GPU memory for the container '{container}', and the pod has {', '.join(map(str, names))}")
    limit = of_keys.get("gpu-memory.limit")
    request = of_keys.get("gpu-memory.request", limit)
    if request is not None and limit is not None and request > limit:
        raise RequestError(f"container '{container}' asks for {request} MiB, more than its limit of {limit} MiB")
    return request


def _of_container(annotations: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str], str]]:
    for name, value in annotations.items():
        if match := _OF_CONTAINER.fullmatch(name):
            yield name, (match["container"], match["key"]), value


def _named(annotations: Mapping[str, str]) -> str:
    """The annotation by which a pod asks for a share, for a message."""
    return next(
        (name for name in annotations if name in {GPU_MEMORY, GPU_FRACTION} or _OF_CONTAINER.fullmatch(name)),
        GPU_MEMORY,
    )


def _mig_slices(requested: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: count for name, count in requested.items() if name.startswith(MIG_PREFIX) and count}


def _containers(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _resources(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """What a pod takes while it runs or starts, by resource (pod_info.go, getPodResourceRequest).

    Containers and sidecars add up; an init container counts with the sidecars before it, where that is more.
    """
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or ():
        _add(total, _requested(container))
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        requested = _requested(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requested)
            continue
        _add(requested, sidecars)
        peak |= {name: max(amount, peak.get(name, amount)) for name, amount in requested.items()}
    _add(total, sidecars)
    total |= {name: max(amount, total.get(name, amount)) for name, amount in peak.items()}
    # What the pod as a whole asks for counts in place of its containers' (Kubernetes 1.34, pod-level resources).
    whole = spec.get("resources") or {}
    limits, requests = _amounts(whole.get("limits") or {}), _amounts(whole.get("requests") or {})
    total |= {name: amount for name, amount in limits.items() if name in _OF_PODS and not total.get(name)}
    total |= {name: amount for name, amount in requests.items() if name in _OF_PODS}
    _add(total, _amounts(spec.get("overhead") or {}))
    return total


def _requested(container: Mapping[str, Any]) -> dict[str, Fraction]:
    """A container's requests; where it has only a limit, the API server makes a request of it."""
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(resources: Mapping[str, Any]) -> dict[str, Fraction]:
    amounts = {}
    for name, value in resources.items():
        try:
            amounts[name] = quantity(value)
        except QuantityError as error:
            raise RequestError(f"{name}: {error}") from error
    return amounts


def _add(total: dict[str, Fraction], more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount
