"""What a host's agent answers to `examine`: outside input, taken apart once and strictly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from components.hosts.answer import LONGEST_ANSWER, ProbeAnswer, Text, Texts
from manifests.hosts import HostPlan


class HostLookError(Exception):
    """A host could not be looked at; the text says why, in one line."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DropIn(_Answer):
    """A file beside containerd's main configuration."""

    path: Text
    version: int | None
    imported: bool
    nvidia: bool


class Merged(_Answer):
    """What containerd makes of its files."""

    default_runtime: Text
    runtimes: Texts
    nvidia_program: Text
    lacks_program: bool
    systemd_cgroup: Annotated[dict[Text, bool], Field(max_length=10)]

    @property
    def has_nvidia(self) -> bool:
        """Whether it has the runtime with a program of NVIDIA's; k3s may leave the program to PATH."""
        program = self.nvidia_program.rpartition("/")[2]
        return "nvidia" in self.runtimes and (not program or program.startswith("nvidia-container-runtime"))


class Containerd(_Answer):
    """The distribution's containerd; where `unseen` says why, nothing else of its files is known."""

    config: Text
    version: Text | None
    file_version: int | None
    drop_ins: Annotated[list[DropIn], Field(max_length=200)]
    elsewhere: Texts
    merged: Merged | None
    changed: Texts
    refused: Text | None
    unseen: Text | None


class Docker(_Answer):
    """Docker's configuration."""

    config: Text
    state: Literal["valid", "empty", "invalid", "unreadable"]


class Csv(_Answer):
    """The lists of a Jetson's files and devices, and the entries that lead nowhere."""

    files: Texts
    missing: Texts


class Injection(_Answer):
    """What decides what the toolkit gives a container; None where there is nothing of it, or it can't be read."""

    l4t: Text | None
    csv_digest: Text | None
    cdi_digest: Text | None


class Examination(_Answer):
    """The whole answer."""

    version: Literal[2]
    probe: ProbeAnswer
    containerd: Containerd | None
    docker: Docker | None
    operator_toolkit: bool
    csv: Csv
    injection: Injection
    swap_mib: Annotated[int, Field(ge=0)]
    devices_without_link: Texts
    validations: Texts | None
    clock: Annotated[int, Field(ge=0, le=2**40)]
    """Seconds since 1970, by the host's clock."""


@dataclass(frozen=True)
class HostReport:
    """One host of the stack.

    Attributes:
        plan: what the stack expects of it.
        examination: what it says of itself; None where it could not be asked.
        trouble: why it could not.
        heard_at: when it answered, in seconds since 1970 by this machine's clock; None where nobody noted it.
    """

    plan: HostPlan
    examination: Examination | None = None
    trouble: str = ""
    heard_at: float | None = None

    @property
    def toolkit(self) -> Mapping[str, str]:
        """Who owns the container toolkit there, and its mode, as the stack says."""
        toolkit = self.plan.desired["toolkit"]
        return {str(key): str(value) for key, value in toolkit.items()} if isinstance(toolkit, dict) else {}


def read_examination(text: str) -> Examination:
    """Take a host's answer apart.

    Raises:
        HostLookError: if it is too long, says an error, or is no such answer.
    """
    if len(text) > LONGEST_ANSWER:
        raise HostLookError(f"its answer has {len(text)} characters, more than {LONGEST_ANSWER}")
    try:
        return Examination.model_validate_json(text, strict=True)
    except ValidationError as error:
        reason = agent_error(text)
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise HostLookError(
            reason
            or f"its answer is not one of our agent ({where}: {first['msg']}). The login's shell must be silent "
            "without a terminal"
        ) from None


class _Error(BaseModel):
    message: Text
    remedy: Text


class _Failed(BaseModel):
    error: _Error


def agent_error(text: str) -> str:
    """What an agent that failed says of it; empty where that is no answer of such a one."""
    try:
        failed = _Failed.model_validate_json(text)
    except ValidationError:
        return ""
    return f"{failed.error.message} {failed.error.remedy}"
