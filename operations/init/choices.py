"""What a team chooses for its repository, checked before anything is written."""

import re
from enum import StrEnum, unique
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from config.cluster import Distribution
from operations.errors import OperationError
from operations.stacks import NO_STACK_NAME, ROLLOUT, STACK_NAME


@unique
class Way(StrEnum):
    """How the repository takes the product, by version.

    `component`: as a component of a Pulumi program in YAML. `program`: as this repository's own Python program.
    """

    COMPONENT = "component"
    PROGRAM = "program"


@unique
class PlatformKind(StrEnum):
    """The stack's platform: that of `platform.kind` in its settings."""

    TEGRA = "tegra"
    X86 = "x86"


_REPOSITORY = re.compile(
    r"https://[A-Za-z0-9][A-Za-z0-9.-]*(?P<port>:\d{1,5})?/(?P<slug>[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*)"
)
_VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?")


def _stack_name(value: str) -> str:
    if not STACK_NAME.fullmatch(value):
        raise PydanticCustomError("stack_name", NO_STACK_NAME)
    if value.lower().endswith(ROLLOUT):
        raise PydanticCustomError(
            "stack_name",
            "no name that the workflows take: an environment of GitHub that ends in '{end}' has the credentials to "
            "update another stack. Choose another one",
            {"end": ROLLOUT},
        )
    return value


def _repository(value: str) -> str:
    address = value.removesuffix("/").removesuffix(".git")
    if not _REPOSITORY.fullmatch(address):
        raise PydanticCustomError(
            "repository",
            "not the address of a Git repository: write https, host, owner and name, such as "
            "https://github.com/example/kai-anywhere, without user, password or branch",
        )
    return address


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise PydanticCustomError("version", "no version: write a tag of the repository, such as v1.2.3")
    return value


class Choices(BaseModel, extra="forbid", frozen=True):
    """What the repository is for.

    Attributes:
        stack: the first stack's name, and so that of its file.
        platform: of the stack.
        distribution: of the stack's cluster.
        way: how the product is taken.
        repository: where the product is, without `.git`.
        version: the product's tag.
    """

    stack: Annotated[str, AfterValidator(_stack_name)]
    platform: PlatformKind
    distribution: Distribution
    way: Way
    repository: Annotated[str, AfterValidator(_repository)]
    version: Annotated[str, AfterValidator(_version)]

    @model_validator(mode="after")
    def _engine_can_fetch_the_component(self) -> Self:
        if self.way is Way.COMPONENT and self._place["port"]:
            raise PydanticCustomError(
                "port",
                "--repository '{repository}' names a port, and Pulumi fetches components without one. Use an address "
                "without it, or --way program",
                {"repository": self.repository},
            )
        return self

    @property
    def _place(self) -> re.Match[str]:
        match = _REPOSITORY.fullmatch(self.repository)
        assert match is not None  # noqa: S101 - validated
        return match

    @property
    def slug(self) -> str:
        """Owner and name of the product's repository, as `uses:` of a workflow has them."""
        return self._place["slug"]

    @property
    def example(self) -> Literal["jetson", "x86"]:
        """The stack of the template that this one begins as."""
        match self.platform:
            case PlatformKind.TEGRA:
                return "jetson"
            case PlatformKind.X86:
                return "x86"


def checked(**options: object) -> Choices:
    """What was said, as choices.

    Raises:
        OperationError: if something of it is not allowed; the text names option, value and what is allowed.
    """
    try:
        return Choices.model_validate(options)
    except ValidationError as error:
        lines = [
            _refusal(str(problem["loc"][0]), problem) if problem["loc"] else f"{problem['msg']}."
            for problem in error.errors(include_url=False)
        ]
        raise OperationError("\n".join([*lines, "Nothing was written."])) from None


def refusal_of(option: str, value: str) -> str | None:
    """Why one option can't have a value, with what is allowed; None if it can."""
    try:
        TypeAdapter(Choices.model_fields[option].rebuild_annotation()).validate_python(value)
    except ValidationError as error:
        return _refusal(option, error.errors(include_url=False)[0])
    return None


def _refusal(option: str, problem: ErrorDetails) -> str:
    return f"--{option} {problem['input']!r} is {_reason(problem['type'], problem['msg'])}."


def _reason(kind: str, message: str) -> str:
    # pydantic's own sentence for a closed vocabulary: "Input should be 'tegra' or 'x86'".
    return f"not allowed: {message.replace('Input should be', 'it must be')}" if kind == "enum" else message
