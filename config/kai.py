"""Settings of the KAI scheduler and its queues."""

from enum import StrEnum, unique
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from config.charts import ChartSettings, ImageSettings
from config.model import Name, Settings

DEFAULT_PARENT_QUEUE = "default-parent-queue"
"""KAI's usual pair of queues, this one above `default-queue`; upstream's examples submit to the latter."""
DEFAULT_QUEUE = "default-queue"


@unique
class Placement(StrEnum):
    """`scheduler.placementStrategy`: fill nodes one after the other, or spread over them."""

    BINPACK = "binpack"
    SPREAD = "spread"


class QueueShare(Settings):
    """One resource of a queue; -1 means without limit."""

    quota: Annotated[float, Field(ge=-1)] = 0
    limit: Annotated[float, Field(ge=-1)] = -1
    over_quota_weight: Annotated[float, Field(ge=0)] = 1

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
    cpu: QueueShare = QueueShare()
    memory: QueueShare = QueueShare()


class SchedulerSettings(Settings):
    """The scheduler's own options."""

    placement: Placement = Placement.BINPACK
    args: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], str] = {}
    """Flags without dashes, values as strings: `{v: "4"}` (`scheduler.args`, which v0.9's additionalArgs became)."""


class KaiSettings(Settings):
    """The KAI scheduler's release, its reservation namespace and its queues."""

    namespace: Name = "kai-scheduler"
    chart: ChartSettings = ChartSettings()
    images: ImageSettings = ImageSettings()
    image_tag: Annotated[str, Field(min_length=1)] | None = None
    """`global.tag`, for images that were built locally."""
    scheduler: SchedulerSettings = SchedulerSettings()
    cdi_enabled: bool | None = None
    """`binder.cdiEnabled`: whether KAI names GPUs as `k8s.device-plugin.nvidia.com/gpu=<UUID>`; null lets KAI ask the
    ClusterPolicy. With false, KAI writes bare UUIDs, and the operator's runtime is told a mode that resolves them."""
    default_queue: bool = True
    """Whether to make `default-parent-queue` and `default-queue`, as KAI's chart would; ours are removed on destroy."""
    queues: dict[Name, QueueSettings] = {}
    timeout_seconds: Annotated[int, Field(ge=30, le=7200)] = 600
    """Bound of the release's own wait, and of the wait for the queue controller after it."""

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
            seen = [name]
            while (parent := self.queues[seen[-1]].parent) in self.queues:
                if parent in seen:
                    raise PydanticCustomError(
                        "queue_cycle",
                        "queues form a circle: {circle}. Give one of them another parent.",
                        {"circle": " -> ".join([*seen, parent])},
                    )
                seen.append(parent)
        return self

    @property
    def writes_bare_uuids(self) -> bool:
        """Whether KAI surely names GPUs by bare UUIDs; where it asks the ClusterPolicy, the operator's mode fits."""
        return self.cdi_enabled is False
