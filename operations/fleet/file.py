"""`fleet.yaml`: what a team says of its sites. Which sites there are stands nowhere: they are the stacks' files."""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, StringConstraints, ValidationError

from config.model import Name, Settings
from config.yaml_text import load_yaml
from operations.errors import OperationError
from operations.stacks import FLEET_FILE

_PARALLEL = 256
"""The most jobs that GitHub makes of one matrix."""


class Wave(Settings):
    """Sites that are updated together."""

    name: Name
    sites: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.*?-]+$")]], Field(min_length=1)]
    """Names of stacks, where * stands for any text and ? for one letter. A site is in the first wave that has it."""
    failure_budget: Annotated[int, Field(ge=0)] | Annotated[str, StringConstraints(pattern=r"^([1-9]?[0-9]|100)%$")] = 0
    """How many sites of the wave may fail, as a number or in percent of them, before the next wave is not begun."""
    parallel: Annotated[int, Field(ge=1, le=_PARALLEL)] = 10
    """How many sites are updated at the same time."""


class Operator(Settings):
    """Where the Pulumi Kubernetes Operator finds what it updates."""

    repository: Annotated[str, StringConstraints(pattern=r"^(https://|ssh://|git@)\S+$")]
    """The Git repository with the program and the stacks' files."""
    folder: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")]
        | None
    ) = None
    """The folder with Pulumi.yaml, where it is not the repository's own."""
    backend: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+://\S+$")]
    """Where Pulumi keeps the state, as `pulumi login` takes it."""
    organization: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$")] = "organization"
    """The stacks' organization; `organization` is what a backend without accounts calls it."""
    namespace: Name = "pulumi-kubernetes-operator"
    """Of the Stack objects, and of the Secrets that they name."""
    service_account: Name = "pulumi"
    """Of the pods that run Pulumi."""
    image: Annotated[str, StringConstraints(pattern=r"^\S+$")] | None = None
    """Of these pods; by default the operator's own choice."""


class FleetFile(Settings):
    """The whole file."""

    canary: str
    """The site that is updated first, alone. Where it fails, nothing else is begun."""
    waves: list[Wave] = Field(default_factory=list)
    """What follows, in this order."""
    operator: Operator | None = None
    """Only for the Pulumi Kubernetes Operator."""


def read_fleet(folder: Path) -> FleetFile:
    """What a folder's `fleet.yaml` says.

    Raises:
        OperationError: if there is none, or anything in it is not allowed.
    """
    path = folder / FLEET_FILE
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise OperationError(
            f"There is no {FLEET_FILE} in {folder.absolute()}. It says which site is updated first, and which "
            "waves follow: docs/fleets.md shows one."
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise OperationError(f"{FLEET_FILE} is not YAML: {error}") from error
    try:
        return FleetFile.model_validate(content)
    except ValidationError as error:
        lines = [f"{FLEET_FILE} is not right. Nothing was done."]
        for problem in error.errors(include_url=False):
            place = ".".join(
                str(part) for part in problem["loc"] if not str(part).startswith(("constrained", "int", "str"))
            )
            given = "" if isinstance(problem["input"], dict | list) else f" (found: {problem['input']!r})"
            lines.append(f"  {place or 'the file'}: {problem['msg']}{given}")
        raise OperationError("\n".join(lines)) from None
