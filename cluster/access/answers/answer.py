"""What the answers of the API server have in common: each is validated once, by its model."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field

from gpu_sharing.quantities import ImpossibleError, quantity

_YEAR = re.compile(r"(?!0000)\d{4}-", re.ASCII)


def written(time: object) -> str | None:
    """A time as the API server says it, or None for one of a year that Python does not have.

    Who may update an object writes any time into its `metadata.managedFields`, and a kubelet into the status of its
    node and pods. The API server keeps it, and one pod would hide all others.
    """
    return time if isinstance(time, str) and _YEAR.match(time) else None


Moment: TypeAlias = Annotated[datetime | None, BeforeValidator(written)]
"""A time that others than the API server write."""


class Answer(BaseModel, extra="ignore", frozen=True):
    """An answer of the API server: the fields we read, with their types; it may hold more."""


class FieldOwner(Answer):
    """An entry of `metadata.managedFields`: who last wrote which fields."""

    manager: str = ""
    operation: str = ""
    """`Apply` or `Update`."""
    subresource: str = ""
    time: Moment = None
    """When it last wrote any of its fields."""
    fields: dict[str, Any] = Field(default={}, alias="fieldsV1")

    def owns_label(self, label: str) -> bool:
        """Whether it wrote this label."""
        labels = self.fields.get("f:metadata", {}).get("f:labels", {})
        return f"f:{label}" in labels

    def owns_annotation(self, annotation: str) -> bool:
        """Whether it wrote this annotation."""
        annotations = self.fields.get("f:metadata", {}).get("f:annotations", {})
        return f"f:{annotation}" in annotations


class Condition(Answer):
    """What an object says of itself."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: Moment = Field(default=None, alias="lastTransitionTime")
    """When the status changed last."""


def whole(value: object, unit: int = 1) -> int:
    """A quantity of devices, or of units of memory, as a number: the API server writes 1000 as `1k`.

    0 for more than any machine has, such as `1e200`, which the API server takes of everybody: nobody gets them.
    """
    try:
        return int(quantity(str(value)) // unit)
    except ImpossibleError:
        return 0


def release_of(annotations: Mapping[str, str], namespace: str) -> tuple[str, str] | None:
    """Namespace and name of the Helm release that an object came with, by its annotations."""
    name = annotations.get("meta.helm.sh/release-name")
    return (annotations.get("meta.helm.sh/release-namespace", namespace), name) if name else None
