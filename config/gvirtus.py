"""Settings of remote GPUs: GVirtuS and LUPINE backends on GPU nodes, and pods elsewhere that use them."""

import re
from enum import StrEnum, unique
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from config.images import DigestImage, PinnedImage, PullSecrets
from config.model import AMOUNT_WITH_UNIT, Labels, Name, NodeName, Settings
from config.reservation import Carrier

FRONTENDS_NAMESPACE = "gvirtus-frontends"
"""The device plugin's namespace: it mounts a folder of the node, so it may not share one with other pods."""

FRONTEND_ALLOWED = "gvirtus.io/frontend.allowed"
"""A node's label: it is one of the stack's frontends, as long as no GPU is detected there."""


@unique
class BackendKind(StrEnum):
    """The program that serves a GPU over the network, and so what its clients need."""

    GVIRTUS = "gvirtus"
    """Clients need a properties file with an IPv4 address, and an application linked against GVirtuS' libraries."""
    LUPINE = "lupine"
    """Clients need one environment variable with an address, and LUPINE's driver library in their image."""


_BACKEND_NAME = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")
_CPU = re.compile(r"\d{1,9}m|\d{1,6}(\.\d{1,3})?", re.ASCII)
_MEMORY = re.compile(r"(?=.*[1-9])\d{1,9}(\.\d{1,3})?(M|G|T|Mi|Gi|Ti)", re.ASCII)


def _service_name(value: str) -> str:
    if not _BACKEND_NAME.fullmatch(value):
        raise PydanticCustomError(
            "backend_name",
            "not a backend's name: it names a Service too, so use lower-case letters, digits and '-', begin with a "
            "letter, at most 50 characters",
        )
    return value


def _cpu(value: str) -> str:
    if not _CPU.fullmatch(value):
        raise PydanticCustomError("quantity", "not a Kubernetes quantity of CPU such as '500m' or '2'")
    return value


def _memory(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int) or _MEMORY.fullmatch(str(value)):
        return value
    meant = _meant(str(value))
    raise PydanticCustomError(
        "quantity",
        "not a Kubernetes quantity of memory such as '500Mi' or '2Gi' (no unit has a B; 'm' is 1/1000 of a byte{meant}",
        {"meant": f"). Write '{meant}' if that is what you meant." if meant else ")"},
    )


def _meant(value: str) -> str:
    """The quantity that was probably meant; empty where nobody can tell."""
    match = AMOUNT_WITH_UNIT.fullmatch(" ".join(value.split()))
    if match is None:
        return ""
    unit = match["unit"].upper().replace("I", "i").removesuffix("B")
    quantity = match["number"] + (unit if match["unit"] else "Mi")
    return quantity if _MEMORY.fullmatch(quantity) else ""


BackendName = Annotated[str, AfterValidator(_service_name), Field(title="name")]
Cpu = Annotated[str, AfterValidator(_cpu), Field(title="Kubernetes quantity")]
Memory = Annotated[str, BeforeValidator(_memory), Field(title="Kubernetes quantity")]


class GvirtusBackend(Settings):
    """One server of one GPU."""

    kind: BackendKind = BackendKind.GVIRTUS
    image: PinnedImage
    """The server's image."""
    node: NodeName | None = None
    """The node it runs on."""
    node_selector: Annotated[Labels, Field(min_length=1, examples=[{"example.com/gpu": "true"}])] | None = None
    """Labels of the nodes it may run on; without `node` and this, nodes where a GPU was detected."""
    gpu_resource: Annotated[
        str,
        Field(
            pattern=r"^nvidia\.com/(gpu|gpu\.shared|mig-[a-z0-9]+(\.[a-z0-9]+)*)$",
            title="resource name",
            examples=["nvidia.com/mig-1g.5gb"],
        ),
    ] = "nvidia.com/gpu"
    """What it requests one of."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of its Service; by default the program's own."""
    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] = 65532
    """The uid in the container; the GPU's device files must be open to it."""
    cpu: Cpu = "500m"
    """CPU that it requests."""
    memory: Memory = "2Gi"
    """Limit of the server's own memory: what clients copy passes through it."""


class FrontendSettings(Settings):
    """Nodes without a GPU that advertise `nvidia.com/gpu`, so that pods with remote GPUs are scheduled and counted."""

    nodes: Annotated[tuple[NodeName, ...], Field(min_length=1, strict=False)]
    """Nodes without a GPU."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1000)] = 8
    """How many pods with one GPU each a node takes."""
    device_plugin_image: DigestImage | None = None
    """squat/generic-device-plugin by digest; by default the pinned release."""

    @field_validator("nodes")
    @classmethod
    def _a_node_stands_once(cls, nodes: tuple[str, ...]) -> tuple[str, ...]:
        for node in nodes:
            if nodes.count(node) > 1:
                raise PydanticCustomError("node_listed_twice", "node '{node}' stands here twice", {"node": node})
        return nodes


class GvirtusSettings(Settings):
    """Remote GPUs. Without this section nothing of it is installed."""

    namespace: Name = "gvirtus-system"
    """The namespace of the backends."""
    carrier: Carrier = Carrier.AUTO
    """`webhook` is for Kubernetes before 1.36, and needs `admission.image`. It adds no node selectors: see
    docs/gvirtus.md."""
    backends: Annotated[dict[BackendName, GvirtusBackend], Field(min_length=1)]
    """The backends by name; pods ask for one by this name."""
    default_backend: str | None = None
    """The backend of pods that name none. If there is only one backend, it is the default."""
    client_namespace_labels: Annotated[Labels, Field(examples=[{"example.com/team": "robots"}])] = {}
    """Namespaces whose labelled pods reach the backends; empty means any namespace."""
    pull_secrets: PullSecrets = ()
    """Names of existing docker-registry Secrets in the namespace."""
    frontends: FrontendSettings | None = None
    timeout_seconds: Annotated[int, Field(ge=30, le=7200)] = 600
    """How long `up` waits for a backend to be ready."""

    @property
    def default(self) -> str | None:
        """The backend of pods that name none, or None where they must."""
        if self.default_backend is None and len(self.backends) == 1:
            return next(iter(self.backends))
        return self.default_backend

    @model_validator(mode="after")
    def _the_default_is_a_backend(self) -> Self:
        if self.default_backend is not None and self.default_backend not in self.backends:
            raise PydanticCustomError(
                "unknown_backend",
                "default_backend '{name}' is none of the backends: {known}",
                {"name": self.default_backend, "known": ", ".join(sorted(self.backends))},
            )
        return self

    @model_validator(mode="after")
    def _a_backend_runs_in_one_place(self) -> Self:
        for name, backend in self.backends.items():
            if backend.node is not None and backend.node_selector is not None:
                raise PydanticCustomError(
                    "backend_place",
                    "backend '{name}' has node and node_selector. Keep one of them.",
                    {"name": name},
                )
            if self.frontends is not None and backend.node in self.frontends.nodes:
                raise PydanticCustomError(
                    "backend_on_frontend",
                    "node '{node}' is the node of backend '{name}' and a frontend, which has no GPU. Remove it from "
                    "frontends.nodes.",
                    {"node": backend.node, "name": name},
                )
        return self
