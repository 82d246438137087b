"""What the states of the sites say, as data."""

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from cluster.ownership.deployed_state import STACK
from operations.engine import Checkpoint, Resource

_PACKAGE = "pulumi:providers:kai-anywhere"
_COMMIT_LETTERS = 12
_BY_COMMIT = re.compile(r"0\.0\.0-x([0-9a-f]+)")
"""How Pulumi names a package that was taken from Git at a commit."""


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
    """The commit of the project's checkout, where it was one; shortened."""


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
    version: str | None = None
    """The tag at which the site has kai-anywhere, such as `v1.2.3`; the commit, shortened, where no tag is known."""
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
        problems = []
        if self.unread is not None:
            problems.append("not read")
        if self.pending:
            problems.append(f"{self.pending} pending")
        if self.last is not None and self.last.result != "succeeded":
            problems.append(f"{self.last.kind} {self.last.result}")
        return tuple(problems)


class Report(_Model):
    """Every site."""

    version: int = Field(default=1, ge=1)
    """Of this form."""
    sites: tuple[Site, ...]


class HistoryEntry(BaseModel, extra="ignore", frozen=True):
    """An entry of `pulumi stack history --json` (3.259)."""

    kind: str
    result: str
    start_time: str = Field(alias="startTime")
    environment: dict[str, str] = {}

    @property
    def update(self) -> Update:
        """What a report has of it."""
        commit = self.environment.get("git.head", "")[:_COMMIT_LETTERS]
        return Update(kind=self.kind, result=self.result, started=self.start_time, program=commit or None)


def site_of(  # noqa: PLR0913 - a site is read of so much
    name: str,
    checkpoint: Checkpoint,
    history: Sequence[HistoryEntry],
    tags: Mapping[str, str],
    *,
    wave: str | None,
    simulated: bool,
) -> Site:
    """What a site's state says; `tags` are those of the program's repository, by commit."""
    made = [resource for resource in checkpoint.resources if resource.custom and not _of_the_engine(resource.type)]
    outputs = checkpoint.outputs
    return Site(
        site=name,
        wave=wave,
        simulated=simulated,
        cluster=checkpoint.state.cluster_uid,
        version=_version(checkpoint.resources, history, tags),
        platform=_text(outputs.get("platform")),
        kai=_text(outputs.get("kai_version")),
        gpu_operator=_text(outputs.get("gpu_operator_version")),
        pulumi=checkpoint.manifest.version or None,
        resources=len(made),
        pending=len(checkpoint.pending),
        last=history[0].update if history else None,
    )


def _version(resources: Sequence[Resource], history: Sequence[HistoryEntry], tags: Mapping[str, str]) -> str | None:
    """As the package says it, else a program that was taken by version, else the checkout that the program is in."""
    for resource in resources:
        version = resource.inputs.get("version")
        if resource.type == _PACKAGE and version and _source(resource).startswith("git://"):
            by_commit = _BY_COMMIT.fullmatch(version)
            return by_commit[1][:_COMMIT_LETTERS] if by_commit else f"v{version}"
    for resource in resources:
        if resource.type == STACK and (program := _text(resource.outputs.get("program_version"))):
            return program
    commit = history[0].environment.get("git.head", "") if history else ""
    return tags.get(commit) or commit[:_COMMIT_LETTERS] or None


def _source(provider: Resource) -> str:
    """Where a provider's plugin comes from; the one of a checkout has none."""
    internal = provider.inputs.get("__internal")
    return str(internal.get("pluginDownloadURL", "")) if isinstance(internal, dict) else ""


def _of_the_engine(token: str) -> bool:
    return token == STACK or token.startswith("pulumi:providers:")


def _text(value: object) -> str | None:
    """A plain output; an encrypted one is none."""
    return value if isinstance(value, str) else None
