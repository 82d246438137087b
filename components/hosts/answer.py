"""What a host's agent answers to `probe`: outside input, taken apart once and strictly."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from manifests.hosts import HostPlatform

LONGEST_ANSWER = 256 * 1024
"""Characters; an honest answer has some thousand."""

Text = Annotated[str, Field(max_length=4096)]
Texts = Annotated[list[Text], Field(max_length=200)]


class HostAnswerError(Exception):
    """A host's answer is not what its agent says."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PlatformAnswer(_Answer):
    """What the host is, and from which signals that follows."""

    kind: HostPlatform
    generation: Text | None
    model: Text | None
    jetpack: Text | None
    reasons: Texts


class DriverAnswer(_Answer):
    """The NVIDIA driver, if any."""

    version: Text | None
    library_folder: Text | None
    reasons: Texts


class FolderAnswer(_Answer):
    """A folder of libraries: as the host names it, and without links; the latter is None where it is not there."""

    path: Text
    real: Text | None
    named_by: Texts


class PlaceAnswer(_Answer):
    """A file with a library's name; `real` is what it is, or what is missing where it is a link to nothing."""

    folder: Text
    path: Text
    real: Text
    bytes: Annotated[int, Field(ge=0)] | None
    state: Literal["library", "stub", "dangling"]


class LibrariesAnswer(_Answer):
    """Where the driver's libraries are; `findings` is what is wrong with them."""

    folders: Annotated[list[FolderAnswer], Field(max_length=1000)]
    nvml: Annotated[list[PlaceAnswer], Field(max_length=1000)]
    cuda: Annotated[list[PlaceAnswer], Field(max_length=1000)]
    findings: Texts


class GapAnswer(_Answer):
    """A feature that the kernel can't do, and the options that it lacks."""

    feature: Text
    options: Texts


class KernelAnswer(_Answer):
    """The kernel that runs, and what it lacks."""

    release: Text | None
    config: Text | None
    gaps: Annotated[list[GapAnswer], Field(max_length=100)]
    reasons: Texts


class GpuAnswer(_Answer):
    """One GPU; memory in MiB, where the number comes from, and what every source said."""

    index: Annotated[int, Field(ge=0, le=1023)]
    uuid: Text | None
    name: Text
    memory_mib: Annotated[int, Field(ge=1, le=2**31)] | None
    memory_source: Literal["nvml", "cuda", "meminfo"] | None
    memory_reasons: Texts


class LibraryAnswer(_Answer):
    """Whether a library of the driver answers."""

    ok: bool
    reason: Text | None


class MemoryAnswer(_Answer):
    """The machine's memory, MemTotal in MiB."""

    total_mib: Annotated[int, Field(ge=1, le=2**31)]


class RuntimeAnswer(_Answer):
    """One container runtime."""

    name: Text
    version: Text | None
    config: Text | None
    reasons: Texts


class KubernetesAnswer(_Answer):
    """The Kubernetes distribution, `none` without one."""

    distribution: Text
    version: Text | None
    reasons: Texts


class ToolkitAnswer(_Answer):
    """The NVIDIA Container Toolkit, if any."""

    version: Text | None
    mode: Text | None
    config: Text | None
    reasons: Texts


class UserAnswer(_Answer):
    """Who asked."""

    uid: Annotated[int, Field(ge=0, le=2**32)]


class ProbeAnswer(_Answer):
    """The whole answer.

    A state may hold one of version 1, which had neither `libraries` nor `kernel`: a run with `--target` asks no host.
    """

    version: Literal[1, 2]
    architecture: Text
    python: Text
    platform: PlatformAnswer
    driver: DriverAnswer
    libraries: LibrariesAnswer | None = None
    kernel: KernelAnswer | None = None
    devices: Annotated[list[Text], Field(max_length=1000)]
    gpus: Annotated[list[GpuAnswer], Field(max_length=1024)]
    nvml: LibraryAnswer
    cuda: LibraryAnswer
    memory: MemoryAnswer
    runtimes: Annotated[list[RuntimeAnswer], Field(max_length=100)]
    kubernetes: KubernetesAnswer
    toolkit: ToolkitAnswer
    user: UserAnswer

    @model_validator(mode="after")
    def _has_what_its_version_has(self) -> "ProbeAnswer":
        if (self.version == 1) != (self.libraries is None) or (self.version == 1) != (self.kernel is None):
            raise PydanticCustomError("version", "version 2 has 'libraries' and 'kernel', version 1 neither")
        return self


def read_probe(node: str, text: str) -> ProbeAnswer:
    """Take a host's answer apart.

    Args:
        node: the host, for the message.
        text: what its agent printed.

    Raises:
        HostAnswerError: if it is too long or not such an answer.
    """
    if len(text) > LONGEST_ANSWER:
        raise HostAnswerError(
            f"host '{node}': its answer has {len(text)} characters, more than {LONGEST_ANSWER}. Nothing was changed "
            "there. Look at what the login's shell prints, and whether this is the right machine."
        )
    try:
        return ProbeAnswer.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the answer"
        raise HostAnswerError(
            f"host '{node}': its answer is not one of our agent: {where}: {first['msg']}. Nothing was changed there. "
            "The login's shell may print text of its own (.bashrc, .profile): it must be silent without a terminal."
        ) from None
