"""The verdict on a host, from its own answer, before anything is changed there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from components.hosts.answer import LibrariesAnswer, PlaceAnswer, ProbeAnswer
from manifests.hosts import HostPlan, HostPlatform

_JETPACK_WITHOUT_NVML = "5"
_LEAST_MEMORY_MIB = 1024
_NVML = "libnvidia-ml.so.1"


class HostVerdictError(Exception):
    """A host is not what the stack says; the text names both and the way out."""


@dataclass(frozen=True)
class HostFacts:
    """What the stack takes from a host.

    Attributes:
        platform: what the host is.
        gpu_memory_mib: what KAI may share of one GPU, or None where GPU Feature Discovery labels the node.
        gpu_count: GPUs.
        notes: what a person should know of it, and nothing is stopped for.
    """

    platform: str
    gpu_memory_mib: int | None
    gpu_count: int
    notes: tuple[str, ...] = ()


def judge(plan: HostPlan, answer: ProbeAnswer) -> HostFacts:
    """Compare what the stack says of a host with what the host says of itself; what the stack declares wins.

    Raises:
        HostVerdictError: if they contradict each other, or fractions can't work there.
    """
    _judge_platform(plan, answer)
    _judge_distribution(plan, answer)
    _judge_libraries(plan, answer)
    count = _gpu_count(plan, answer)
    return HostFacts(answer.platform.kind.value, _gpu_memory(plan, answer), count, tuple(_notes(answer)))


def _notes(answer: ProbeAnswer) -> Iterator[str]:
    if answer.libraries is not None:
        yield from answer.libraries.findings
    if answer.kernel is not None and answer.kernel.gaps:
        gaps = "; ".join(f"{gap.feature}: {', '.join(gap.options)}" for gap in answer.kernel.gaps)
        yield f"its kernel, {answer.kernel.release}, lacks options that some programs need. {gaps}"


def _refuse(plan: HostPlan, problem: str, remedy: str) -> HostVerdictError:
    return HostVerdictError(f"host '{plan.node}': {problem}. Nothing was changed there. {remedy}")


def _judge_platform(plan: HostPlan, answer: ProbeAnswer) -> None:
    platform = answer.platform
    if platform.kind is not plan.platform:
        reasons = f" ({'; '.join(platform.reasons)})" if platform.reasons else ""
        problem = (
            f"the stack says that it is '{plan.platform}', but it is '{platform.kind}', {answer.architecture}"
            f"{f', {platform.model}' if platform.model else ''}{reasons}"
        )
        raise _refuse(plan, problem, _platform_remedy(plan, platform.kind))
    if platform.kind is HostPlatform.TEGRA and (platform.jetpack or "").split(".")[0] == _JETPACK_WITHOUT_NVML:
        raise _refuse(
            plan,
            f"it runs JetPack {platform.jetpack}, which has no NVML, and KAI's reservation pods ask NVML for the GPU",
            "Flash JetPack 6 or later, or remove the node from platform.tegra_nodes and from hosts.",
        )


def _platform_remedy(plan: HostPlan, kind: HostPlatform) -> str:
    match kind:
        case HostPlatform.TEGRA:
            return f"List '{plan.node}' under platform.tegra_nodes of a tegra stack, or correct the address."
        case HostPlatform.SPARK:
            return f"List '{plan.node}' under platform.unified_memory_nodes, or correct the address."
        case HostPlatform.X86:
            return f"Remove '{plan.node}' from platform.{_section(plan)}, or correct the address."
        case HostPlatform.NONE:
            return "Install the NVIDIA driver there, or remove the host from hosts."


def _section(plan: HostPlan) -> str:
    return "tegra_nodes" if plan.platform is HostPlatform.TEGRA else "unified_memory_nodes"


def _judge_distribution(plan: HostPlan, answer: ProbeAnswer) -> None:
    distribution = answer.kubernetes.distribution
    if distribution not in {plan.distribution, "none"}:
        raise _refuse(
            plan,
            f"the stack says that it runs {plan.distribution}, but it runs {distribution} "
            f"({'; '.join(answer.kubernetes.reasons)})",
            f"Correct cluster.distribution or hosts.{plan.node}.distribution, or the address.",
        )


def _judge_libraries(plan: HostPlan, answer: ProbeAnswer) -> None:
    """Whether a reservation pod finds NVML in the folders that it is given, under the paths that they have here."""
    libraries = answer.libraries
    if not plan.library_folders or libraries is None:
        return
    real = {folder.path: folder.real for folder in libraries.folders}
    places = {real.get(place.folder): place for place in libraries.nvml}
    resolved = [(folder, real.get(folder)) for folder in plan.library_folders]
    problems = [f"{folder} is not there" for folder, target in resolved if target is None]
    candidates = [(target, places[target]) for _, target in resolved if target is not None and target in places]
    usable = [
        place
        for target, place in candidates
        if place.state == "library" and _folder(place.real) in {target, *plan.library_folders}
    ]
    if usable and not problems:
        return
    if not usable:
        problems += [_trouble(place) for _, place in candidates]
        problems = problems or [f"{_NVML} is not in {', '.join(plan.library_folders)}"]
    raise _refuse(
        plan,
        f"its reservation pods would not find the driver's library NVML: {'; '.join(problems)}",
        _libraries_remedy(plan, libraries),
    )


def _trouble(place: PlaceAnswer) -> str:
    match place.state:
        case "library":
            return f"{place.path} is a link to {place.real}, which a pod with these folders does not see"
        case "stub":
            return f"{place.path} has {place.bytes} bytes and is no library"
        case "dangling":
            return f"{place.path} is a link to {place.real}, which is not there"


def _libraries_remedy(plan: HostPlan, libraries: LibrariesAnswer) -> str:
    real = {folder.path: folder.real or folder.path for folder in libraries.folders}
    # A file that is a link needs the folder of the link, and that of what it leads to: one that is none is better.
    needed = [
        list(dict.fromkeys([real.get(place.folder) or place.folder, _folder(place.real)]))
        for place in libraries.nvml
        if place.state == "library"
    ]
    if not needed:
        return (
            f"{_NVML} is nowhere on the machine: install JetPack's driver (the package nvidia-l4t-nvml), or remove the "
            "node from platform.tegra_nodes and from hosts."
        )
    folders = json.dumps(min(needed, key=len))
    return f"Write platform.tegra_nodes.{plan.node}.driver_library_paths: {folders}, where it really is."


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _gpu_count(plan: HostPlan, answer: ProbeAnswer) -> int:
    count = len(answer.gpus)
    if plan.gpu_count is not None and count not in {plan.gpu_count, 0}:
        raise _refuse(
            plan,
            f"platform.tegra_nodes.{plan.node}.gpu_count is {plan.gpu_count}, but it has {count}",
            "Correct gpu_count.",
        )
    return count if plan.gpu_count is None else plan.gpu_count


def _gpu_memory(plan: HostPlan, answer: ProbeAnswer) -> int | None:
    """MiB of one GPU that shares the machine's memory; a discrete one is labelled by GPU Feature Discovery."""
    if plan.platform is HostPlatform.X86:
        return plan.gpu_memory_mib
    machine_mib = min([answer.memory.total_mib, *(gpu.memory_mib for gpu in answer.gpus if gpu.memory_mib is not None)])
    if plan.gpu_memory_mib is not None:
        if plan.gpu_memory_mib > machine_mib:
            raise _refuse(
                plan,
                f"platform.{_section(plan)}.{plan.node}.gpu_memory_mib is {plan.gpu_memory_mib}, but the machine has "
                f"{machine_mib} MiB, which it shares with its GPU",
                f"Write at most {machine_mib - plan.memory_reserve_mib}, or remove gpu_memory_mib: the host's own "
                f"number is used then, less hosts.{plan.node}.gpu_memory_reserve_mib.",
            )
        return plan.gpu_memory_mib
    shared = machine_mib - plan.memory_reserve_mib
    if shared < _LEAST_MEMORY_MIB:
        raise _refuse(
            plan,
            f"of its {machine_mib} MiB, hosts.{plan.node}.gpu_memory_reserve_mib keeps {plan.memory_reserve_mib}, "
            f"which leaves less than {_LEAST_MEMORY_MIB} MiB to share",
            "Lower the reserve, or declare gpu_memory_mib.",
        )
    return shared
