"""What the states of the sites say, as data."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from operations.engine import Checkpoint

_STACK = "pulumi:pulumi:Stack"
_COMMIT_LETTERS = 12


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Update(_Model):
    """The last thing that Pulumi did with a stack."""

    kind: str
    """`update`, `refresh`, `destroy` and others of Pulumi's."""
    result: str
    """`succeeded`, `failed`, or `in-progress` where it was killed or runs."""
    started: str
    """In UTC, as RFC 3339 has it."""
    program: str | None
    """The commit of the program's checkout, where it was one; shortened."""


class Site(_Model):
    """A site, as its state has it."""

    site: str
    """The stack's name."""
    wave: str | None = None
    """Its wave in fleet.yaml, where there is such a file."""
    unread: str | None = None
    """Why the state can't be read; nothing else is known then."""
    simulated: bool = False
    """Whether it is the state of the stack's simulator."""
    cluster: str | None = None
    """The cluster's identity: the UID of its namespace kube-system."""
    platform: str | None = None
    kai: str | None = None
    """Version of KAI's chart."""
    gpu_operator: str | None = None
    """Version of the GPU Operator's chart, where the stack installs it."""
    pulumi: str | None = None
    """Version of the engine that wrote the state."""
    resources: int = 0
    """Those that a provider made."""
    pending: int = 0
    """What a killed run had begun, and may have left in the cluster."""
    last: Update | None = None

    @property
    def deployed(self) -> bool:
        """Whether there is anything of the stack."""
        return self.resources > 0

    @property
    def problems(self) -> tuple[str, ...]:
        """What a person should look at, in a few words."""
        found = []
        if self.unread is not None:
            found.append("not read")
        if self.pending:
            found.append(f"{self.pending} pending")
        if self.last is not None and self.last.result != "succeeded":
            found.append(f"{self.last.kind} {self.last.result}")
        return tuple(found)


class Report(_Model):
    """Every site."""

    version: int = Field(default=1, ge=1)
    """Of this form."""
    sites: tuple[Site, ...]


class HistoryEntry(BaseModel):
    """An entry of `pulumi stack history --json` (3.259)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: str
    result: str
    start_time: str = Field(alias="startTime")
    environment: dict[str, str] = {}

    @property
    def update(self) -> Update:
        """What a report has of it."""
        commit = self.environment.get("git.head", "")[:_COMMIT_LETTERS]
        return Update(kind=self.kind, result=self.result, started=self.start_time, program=commit or None)


def site_of(
    name: str, checkpoint: Checkpoint, history: Sequence[HistoryEntry], *, wave: str | None, simulated: bool
) -> Site:
    """What a site's state says."""
    made = [resource for resource in checkpoint.resources if resource.custom and not _of_the_engine(resource.type)]
    said: dict[str, Any] = {}
    for resource in checkpoint.resources:
        if resource.type == _STACK:
            said = resource.outputs
    return Site(
        site=name,
        wave=wave,
        simulated=simulated,
        cluster=checkpoint.state.cluster_uid,
        platform=_text(said.get("platform")),
        kai=_text(said.get("kai_version")),
        gpu_operator=_text(said.get("gpu_operator_version")),
        pulumi=checkpoint.manifest.version or None,
        resources=len(made),
        pending=len(checkpoint.pending),
        last=history[0].update if history else None,
    )


def _of_the_engine(token: str) -> bool:
    return token == _STACK or token.startswith("pulumi:providers:")


def _text(value: object) -> str | None:
    """A plain output; an encrypted one is none."""
    return value if isinstance(value, str) else None
