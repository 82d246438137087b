"""The base of every settings model, and the value types that several of them share."""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

HIDDEN = "hidden"
"""The type of an error whose found value is never printed: it may be a secret."""


class Settings(BaseModel):
    """A frozen, strict settings model: an unknown key is an error that names the keys there are."""

    # The docstrings of attributes are read where settings are documented (config/reference.py): pydantic's
    # use_attribute_docstrings parses every model's source at each start, a third of what the program's imports cost.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    removed_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that earlier versions knew, and what to do about each."""

    @model_validator(mode="before")
    @classmethod
    def _unknown_keys_are_named(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        for key in data:
            if key in cls.removed_keys:
                raise PydanticCustomError(
                    "removed_key",
                    "the key '{key}' does not exist any more. {remedy}",
                    {"key": str(key), "remedy": cls.removed_keys[key]},
                )
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                hint = f" Did you mean '{near[0]}'?" if near else ""
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key '{key}'. Allowed here: {allowed}.{hint}",
                    {"key": str(key), "allowed": ", ".join(cls.model_fields), "hint": hint},
                )
        return data


_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE_MAX = 63
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
LABEL_KEY = re.compile(
    rf"((?=[^/]{{1,253}}/){_DNS_SUBDOMAIN.pattern}/)?[A-Za-z0-9]([-\w.]{{0,61}}[A-Za-z0-9])?", re.ASCII
)
_SUBDOMAIN_MAX = 253


def is_object_name(value: str) -> bool:
    """Whether a Kubernetes object may have this name."""
    return len(value) <= _SUBDOMAIN_MAX and _DNS_SUBDOMAIN.fullmatch(value) is not None


def _kubernetes_name(value: str) -> str:
    if not is_object_name(value):
        raise PydanticCustomError(
            "kubernetes_name",
            "not a Kubernetes object name: use lower-case letters, digits, '-' and '.', at most 253 characters",
        )
    return value


def _dns_label(value: str) -> str:
    if len(value) > _LABEL_VALUE_MAX or not _DNS_LABEL.fullmatch(value):
        raise PydanticCustomError(
            "dns_label", "not a DNS label: use lower-case letters, digits and '-', at most 63 characters"
        )
    return value


def _labels(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(text):
            raise PydanticCustomError("label", "'{key}: {text}' is not a label", {"key": key, "text": text})
    return value


def _absolute_path(value: str) -> str:
    parts = value.split("/")
    odd = "" in parts[1:] or "." in parts or ".." in parts or not value.isprintable()
    if not value.startswith("/") or value == "/" or odd:
        raise PydanticCustomError(
            "absolute_path",
            "not a host path: write it absolute, without '..', doubled or trailing slashes and control characters",
        )
    return value


NodeName = Annotated[str, AfterValidator(_kubernetes_name), Field(title="node name")]
"""A Kubernetes node's name, as `kubectl get nodes` prints it."""

Name = Annotated[str, AfterValidator(_dns_label), Field(title="name")]
"""A name that must fit a label value too: namespaces, queues, profiles."""

Labels = Annotated[dict[str, str], AfterValidator(_labels)]
"""Labels of an object."""

HostPath = Annotated[str, AfterValidator(_absolute_path), Field(title="absolute path")]
"""An absolute path on a node."""

_MIB_PER_GIB = 1024
_LEAST_GPU_MIB = 1024
_KIB_PER_MIB = 1024
_BYTES_PER_MIB = 1024 * 1024
_NOT_MIB_FROM = 1024 * 1024
"""KAI itself reads a label from 1048576 on as bytes (scheduler node_info, v0.17.0); no GPU has a TiB."""
_BYTES_FROM = 1024**3
AMOUNT_WITH_UNIT = re.compile(r"(?P<number>\d{1,18}(\.\d{1,18})?) ?(?P<unit>[KMGT]?i?B?)", re.IGNORECASE | re.ASCII)
"""Memory as people write it."""
_SEPARATOR = re.compile(r"(?<=\d)[,'_ ](?=\d{3}(?!\d))")
"""As in 122,880."""
_MIB_PER_UNIT = {
    "b": 1 / _BYTES_PER_MIB,
    "k": 1 / _KIB_PER_MIB,
    "m": 1,
    "g": _MIB_PER_GIB,
    "t": _MIB_PER_GIB * _MIB_PER_GIB,
}


def _mib(value: object) -> object:
    mistake: tuple[str, float] | None = None
    if isinstance(value, str):
        match = AMOUNT_WITH_UNIT.fullmatch(_SEPARATOR.sub("", " ".join(value.split())))
        if match:
            unit = match["unit"][:1].lower()
            mistake = f"'{value}' is not a plain number", float(match["number"]) * _MIB_PER_UNIT.get(unit, 1)
    elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
        if value < _LEAST_GPU_MIB:
            mistake = f"{value} looks like GB", value * _MIB_PER_GIB
        elif value >= _BYTES_FROM:
            mistake = f"{value} looks like bytes", value // _BYTES_PER_MIB
        elif value >= _NOT_MIB_FROM:
            mistake = f"{value} looks like KiB", value // _KIB_PER_MIB
    if mistake is None:
        return value
    what, mib = mistake
    raise PydanticCustomError(
        "gpu_memory_unit",
        "{what}; the unit is MiB, a plain whole number. Write {mib} if that is what you meant.",
        {"what": what, "mib": round(mib)},
    )


GpuMemoryMib = Annotated[int, Field(ge=_LEAST_GPU_MIB, lt=_NOT_MIB_FROM, examples=[57344]), BeforeValidator(_mib)]
"""Memory of one GPU in MiB, the unit of the node label `nvidia.com/gpu.memory`."""
