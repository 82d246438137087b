"""Settings of the KAI scheduler and its queues."""

import re
from collections.abc import Mapping
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from config.charts import ChartName, ChartSettings, ImageSettings, release_line, text_without_quotes
from config.model import Name, Settings

DEFAULT_PARENT_QUEUE = "default-parent-queue"
"""KAI's usual pair of queues, this one above `default-queue`; upstream's examples submit to the latter."""
DEFAULT_QUEUE = "default-queue"
"""Where KAI puts pods that name no queue (KAI v0.17.0 pkg/podgrouper)."""


@unique
class Placement(StrEnum):
    """`scheduler.placementStrategy`: fill nodes one after the other, or spread over them."""

    BINPACK = "binpack"
    SPREAD = "spread"


@unique
class GpuSharingMode(StrEnum):
    """What holds a pod to its fraction of a GPU's memory (`global.gpuSharingMode` of KAI's chart, v0.18)."""

    NON_MEMORY_ENFORCED = "non_memory_enforced"
    """Nothing does: KAI keeps the books, and a program can take more than it asked for. KAI's own default."""
    HAMI_CORE = "hami_core"
    """A library in each pod refuses allocations. It comes with Project HAMi's chart kai-resource-isolator, from 1.1.0
    on, which the stack's user installs beside KAI."""
    NV_FRACTIONS = "nv_fractions"
    """NVIDIA's driver does, from 615 on. It is set up by KAI's GPU fractioning operator, which the stack's user
    installs beside KAI, and needs the GPU Operator from 26.7.1 on and containerd 2 or CRI-O with NRI."""
    DISABLED = "disabled"
    """KAI refuses pods with fractions."""


MODES_SINCE: Mapping[GpuSharingMode, tuple[int, int]] = MappingProxyType(
    {GpuSharingMode.HAMI_CORE: (0, 17), GpuSharingMode.NV_FRACTIONS: (0, 18)}
)
"""The first release line of KAI that a mode works with: the isolator's guide asks for 0.17; NvFractions came with
0.18."""
NOT_ON_SHARED_MEMORY: Mapping[GpuSharingMode, str] = MappingProxyType(
    {
        GpuSharingMode.HAMI_CORE: "HAMi-core asks NVML for the GPU's memory, which a GPU that shares the system's "
        "memory does not tell",
        GpuSharingMode.NV_FRACTIONS: "it needs NVIDIA driver 615 or later, and Jetsons and DGX Sparks have older ones",
    }
)
"""Why a mode works on no Jetson and no DGX Spark (KAI #1967, closed as not to be fixed; JetPack 7.2 has driver 595.78,
DGX OS 580). HAMi has no support for Jetson either (HAMi #979, #1157)."""
LEAST_NV_FRACTIONS_DRIVER = 615
"""Major version of the first NVIDIA driver with CUDA's memory limits (kai-gpu-fractioning, README)."""


_MEMORY = re.compile(r"\s*(?P<number>\d{1,9}(\.\d{1,3})?) ?(?P<unit>[KkMGgTt])((?P<binary>i)B?|B)?\s*", re.ASCII)
"""Memory with a unit. A small `m` is none: it is 1/1000 of a CPU."""


def _amount(value: float) -> float:
    if value < 0 and value != -1:
        raise PydanticCustomError("queue_amount", "not an amount: write 0 or more, or -1, which is without limit")
    return value


def _without_unit(value: object) -> object:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    unit = (1024 if match["binary"] else 1000) ** ("KMGT".index(match["unit"].upper()) + 1)
    raise PydanticCustomError(
        "queue_amount_unit",
        "not a plain number of GPUs, millicpus or MB (10^6 bytes): as memory, '{value}' is {megabytes}",
        {"value": value, "megabytes": f"{float(match['number']) * unit / 1e6:.15g}"},
    )


Amount = Annotated[float, Field(ge=-1), BeforeValidator(_without_unit), AfterValidator(_amount)]
"""Of a resource; -1 is without limit."""


class QueueShare(Settings):
    """One resource of a queue; -1 means without limit."""

    quota: Amount = 0
    """What the queue is promised, in GPUs, millicpus or MB; -1 is without limit."""
    limit: Amount = -1
    """The most that it can use, in GPUs, millicpus or MB; -1 is without limit."""
    over_quota_weight: Annotated[float, Field(ge=0)] = 1
    """Its weight when queues share what nobody was promised."""

    @model_validator(mode="after")
    def _quota_fits_the_limit(self) -> Self:
        if self.limit != -1 and (self.quota == -1 or self.quota > self.limit):
            raise PydanticCustomError(
                "queue_quota",
                "quota {quota} exceeds limit {limit}: a queue can't be promised more than it may use",
                {"quota": self.quota, "limit": self.limit},
            )
        return self


class QueueSettings(Settings):
    """A KAI queue (scheduling.run.ai/v2). Units are KAI's: GPUs, millicpus, MB (10^6 bytes)."""

    parent: Name | None = None
    """Null makes it a top queue; pods are submitted to leaf queues only."""
    priority: Annotated[int, Field(ge=0)] | None = None
    """KAI's default is 100."""
    gpu: QueueShare = QueueShare()
    """In GPUs."""
    cpu: QueueShare = QueueShare()
    """In millicpus."""
    memory: QueueShare = QueueShare()
    """In MB (10^6 bytes)."""


class SchedulerSettings(Settings):
    """The scheduler's own options."""

    placement: Placement = Placement.BINPACK
    args: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], str], Field(examples=[{"v": "4"}])] = {}
    """Flags without dashes, values as strings: `{v: "4"}` (`scheduler.args`, which v0.9's additionalArgs became)."""


class KaiSettings(Settings):
    """The KAI scheduler's release, its reservation namespace and its queues."""

    namespace: ChartName = "kai-scheduler"
    """KAI's namespace."""
    chart: ChartSettings = ChartSettings()
    images: ImageSettings = ImageSettings()
    image_tag: (
        Annotated[
            str,
            Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", title="image tag"),
            AfterValidator(text_without_quotes),
        ]
        | None
    ) = None
    """`global.tag`, for images that were built locally."""
    gpu_sharing_mode: GpuSharingMode = GpuSharingMode.NON_MEMORY_ENFORCED
    binder_service_account: Name = "binder"
    """Account of KAI's binder, which alone creates reservation pods; a product that brings KAI may rename it."""
    scheduler: SchedulerSettings = SchedulerSettings()
    cdi_enabled: bool | None = None
    """`binder.cdiEnabled`: whether KAI names GPUs as `k8s.device-plugin.nvidia.com/gpu=<UUID>`; null lets KAI ask the
    ClusterPolicy. With false, KAI writes bare UUIDs, and the operator's runtime is told a mode that resolves them."""
    default_queue: bool = True
    """Whether to make `default-parent-queue` and `default-queue`, as KAI's chart would; ours are removed on destroy."""
    queues: dict[Name, QueueSettings] = {}
    """Queues by name. Pods name one in the label kai.scheduler/queue."""
    timeout_seconds: Annotated[int, Field(ge=30, le=7200)] = 600
    """Bound of each wait: for the chart's hooks, for the release's pods, for the queue controller and its webhook."""

    @model_validator(mode="after")
    def _the_chart_has_the_mode(self) -> Self:
        since = MODES_SINCE.get(self.gpu_sharing_mode)
        line = release_line(self.chart.version)
        if since is not None and line is not None and line < since:
            raise PydanticCustomError(
                "mode_needs_newer_kai",
                "gpu_sharing_mode '{mode}' needs KAI {since} or later; chart.version is {version}. Remove the version, "
                "or use gpu_sharing_mode: non_memory_enforced.",
                {
                    "mode": self.gpu_sharing_mode.value,
                    "since": ".".join(map(str, since)),
                    "version": self.chart.version or "",
                },
            )
        return self

    @model_validator(mode="after")
    def _queues_form_a_forest(self) -> Self:
        built_in = {DEFAULT_PARENT_QUEUE, DEFAULT_QUEUE} if self.default_queue else set()
        for name, queue in self.queues.items():
            if name in built_in:
                raise PydanticCustomError(
                    "queue_name_taken",
                    "queue '{queue}' is one of KAI's usual pair. Set default_queue: false to define it here.",
                    {"queue": name},
                )
            if queue.parent is not None and queue.parent not in self.queues.keys() | built_in:
                raise PydanticCustomError(
                    "queue_parent_unknown",
                    "queue '{queue}' has the parent '{parent}', which is not there. Queues: {known}.",
                    {
                        "queue": name,
                        "parent": queue.parent,
                        "known": ", ".join(sorted(self.queues.keys() | built_in)),
                    },
                )
            chain = [name]
            while (parent := self.queues[chain[-1]].parent) in self.queues:
                if parent in chain:
                    raise PydanticCustomError(
                        "queue_cycle",
                        "queues form a circle: {circle}. Give one of them another parent.",
                        {"circle": " -> ".join([*chain, parent])},
                    )
                chain.append(parent)
        return self

    @property
    def enforces_memory(self) -> bool:
        """Whether something beside KAI has to hold pods to their fractions."""
        return self.gpu_sharing_mode in MODES_SINCE

    @property
    def writes_bare_uuids(self) -> bool:
        """Whether KAI surely names GPUs by bare UUIDs; where it asks the ClusterPolicy, the operator's mode fits."""
        return self.cdi_enabled is False
