"""What a host shall be: the document that `configure` and `check` read on stdin, validated once, here.

The shortest:

    {"version": 1, "platform": "tegra", "toolkit": {"owner": "host", "mode": "csv"}, "distribution": "k3s"}

`docker`, `cdi`, `images` and `restart` may be said too; the classes below have their meaning.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agents.host.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLATFORMS = ("tegra", "spark", "x86")
OWNERS = ("host", "operator")
MODES = ("auto", "csv", "legacy", "cdi")
DISTRIBUTIONS = ("k3s", "rke2", "k8s-snap", "microk8s", "kubeadm")
MOST_BYTES = 1024 * 1024
_REMEDY = "Write the document as `agents/host/desired.py` describes it; nothing was changed."
_REFERENCE = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]{0,254}(@sha256:[0-9a-f]{64})?")
_MOST_IMAGES = 100
_MOST_SECONDS = 3600


@dataclass(frozen=True)
class Toolkit:
    """Who owns the NVIDIA Container Toolkit on the node, and how its runtime injects a GPU (host-owned only)."""

    owner: str
    mode: str


@dataclass(frozen=True)
class Docker:
    """Whether Docker gets the `nvidia` runtime, and whether that is its default."""

    configure: bool = False
    default_runtime: bool = False


@dataclass(frozen=True)
class Cdi:
    """Whether a CDI specification is written."""

    generate: bool = False


@dataclass(frozen=True)
class Desired:
    """A validated document.

    Attributes:
        platform: One of `PLATFORMS`; what the host must be.
        toolkit: The container toolkit.
        distribution: One of `DISTRIBUTIONS`, or `auto`: what is found on the host.
        docker: Docker beside Kubernetes.
        cdi: CDI specification under /etc/cdi.
        images: References of Docker's images that the cluster's containerd shall hold too.
        restart_seconds: How long a restarted runtime may take until it answers.
    """

    platform: str
    toolkit: Toolkit
    distribution: str
    docker: Docker = field(default_factory=Docker)
    cdi: Cdi = field(default_factory=Cdi)
    images: tuple[str, ...] = ()
    restart_seconds: int = 120


def parse(document: bytes) -> Desired:
    """Validate a document.

    Raises:
        BadInputError: It is not JSON of the expected shape; the message names the place, the value and what is allowed.
    """
    if len(document) > MOST_BYTES:
        raise BadInputError(f"The desired document is larger than {MOST_BYTES} bytes.", _REMEDY)
    try:
        data = json.loads(document.decode("utf-8"), object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"The desired document on stdin is not JSON: {error}.", _REMEDY) from error
    top = _object("the document", data, ("version", "platform", "toolkit", "distribution"), _OPTIONAL)
    if top["version"] != 1 or isinstance(top["version"], bool):
        raise BadInputError(
            f"version: {_shown(top['version'])} is not known; this agent reads version 1.",
            "Use the agent that belongs to the program.",
        )
    platform = _choice("platform", top["platform"], PLATFORMS)
    desired = Desired(
        platform=platform,
        toolkit=_toolkit(top["toolkit"], platform),
        distribution=_choice("distribution", top["distribution"], (*DISTRIBUTIONS, "auto")),
        docker=_docker(top.get("docker", {})),
        cdi=_cdi(top.get("cdi", {})),
        images=_images(top.get("images", [])),
        restart_seconds=_restart(top.get("restart", {})),
    )
    if desired.toolkit.owner == "operator" and (desired.docker.configure or desired.cdi.generate):
        raise BadInputError(
            "toolkit.owner: 'operator' installs the toolkit in the cluster, so docker.configure and cdi.generate, "
            "which need it on the host, can't be asked for.",
            "Set toolkit.owner to 'host', or switch both off.",
        )
    return desired


_OPTIONAL = ("docker", "cdi", "images", "restart")


def _toolkit(data: object, platform: str) -> Toolkit:
    entry = _object("toolkit", data, ("owner", "mode"))
    mode = _choice("toolkit.mode", entry["mode"], MODES)
    if mode == "csv" and platform != "tegra":
        raise BadInputError(
            f"toolkit.mode: 'csv' exists on Tegra only, and platform is '{platform}'.", "Set the mode to 'auto'."
        )
    return Toolkit(_choice("toolkit.owner", entry["owner"], OWNERS), mode)


def _docker(data: object) -> Docker:
    entry = _object("docker", data, (), ("configure", "default_runtime"))
    docker = Docker(**{name: _boolean(f"docker.{name}", value) for name, value in entry.items()})
    if docker.default_runtime and not docker.configure:
        raise BadInputError("docker.default_runtime needs docker.configure.", "Set both, or neither.")
    return docker


def _cdi(data: object) -> Cdi:
    entry = _object("cdi", data, (), ("generate",))
    return Cdi(**{name: _boolean(f"cdi.{name}", value) for name, value in entry.items()})


def _images(data: object) -> tuple[str, ...]:
    if not isinstance(data, list) or len(data) > _MOST_IMAGES:
        raise BadInputError(f"images: must be a list of at most {_MOST_IMAGES} objects.", _REMEDY)
    references = []
    for number, item in enumerate(data):
        place = f"images[{number}]"
        reference = _object(place, item, ("reference",))["reference"]
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise BadInputError(
                f"{place}.reference: {_shown(reference)} is not an image reference like 'registry/name:tag'.", _REMEDY
            )
        references.append(reference)
    return tuple(dict.fromkeys(references))


def _restart(data: object) -> int:
    seconds = _object("restart", data, (), ("timeout_seconds",)).get("timeout_seconds", 120)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= _MOST_SECONDS:
        raise BadInputError(
            f"restart.timeout_seconds: {_shown(seconds)} is not a whole number from 1 to {_MOST_SECONDS}.", _REMEDY
        )
    return seconds


def _object(place: str, data: object, required: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise BadInputError(f"{place}: {_shown(data)} is not an object.", _REMEDY)
    allowed = (*required, *optional)
    unknown = sorted(set(data) - set(allowed))
    if unknown:
        raise BadInputError(f"{place}: unknown key {_shown(unknown[0])}. Allowed: {', '.join(allowed)}.", _REMEDY)
    missing = [name for name in required if name not in data]
    if missing:
        raise BadInputError(f"{place}: the key '{missing[0]}' is missing.", _REMEDY)
    return data


def _choice(place: str, value: object, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise BadInputError(f"{place}: {_shown(value)} is not allowed. Allowed: {', '.join(allowed)}.", _REMEDY)
    return value


def _boolean(place: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadInputError(f"{place}: {_shown(value)} is neither true nor false.", _REMEDY)
    return value


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {_shown(twice)} is there twice")
    return mapping


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."  # noqa: PLR2004 - a value in a message stays short
