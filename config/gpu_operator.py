"""Settings of the NVIDIA GPU Operator and of the sharing that its device plugin does."""

from enum import StrEnum, unique
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from config.charts import ChartName, ChartSettings, ImageSettings
from config.model import Settings

RUNTIME_MODE_VARIABLE = "NVIDIA_CONTAINER_RUNTIME_MODE"
"""Of the container toolkit that the operator installs: the mode of its runtime. With `cdi`, the operator's own default
is `cdi`, not the toolkit's `auto` (GPU Operator v26.7.0, controllers/object_controls.go)."""
_ENVIRONMENT_COUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"


def _fractions_keep_their_gpu(environment: dict[str, str]) -> dict[str, str]:
    """Refuse the switch by which the toolkit ignores what an unprivileged container's environment asks for.

    KAI names a fraction's GPU in the environment alone (KAI v0.17.0, pkg/binder/plugins/gpusharing; NVIDIA Container
    Toolkit v1.20.0, internal/config/image/cuda_image.go).
    """
    value = environment.get(_ENVIRONMENT_COUNTS)
    if value is not None and value.lower() not in {"1", "t", "true"}:
        raise PydanticCustomError(
            "toolkit_ignores_fractions",
            "{variable} is '{said}': pods with a fraction of a GPU would start without it, since KAI names their GPU "
            "in the environment of an unprivileged container. Remove it, and refuse such pods where they are created: "
            "kubectl label namespace NAME kai-anywhere.io/pod-guard=enforce",
            {"variable": _ENVIRONMENT_COUNTS, "said": value},
        )
    return environment


@unique
class MigStrategy(StrEnum):
    """How the device plugin exposes MIG devices (`mig.strategy`)."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


@unique
class DeviceIdStrategy(StrEnum):
    """How the device plugin names GPUs to the container runtime (`DEVICE_ID_STRATEGY`)."""

    UUID = "uuid"
    INDEX = "index"


class DcgmExporterSettings(Settings):
    """GPU metrics for Prometheus on port 9400. DCGM has no Tegra support: never deployed on Tegra nodes."""

    enabled: bool = True
    """Whether DCGM Exporter is deployed."""
    service_monitor: bool = False
    """Needs the Prometheus operator's CRDs; the chart's own default is on since v26.7."""


class GpuOperatorSettings(Settings):
    """The GPU Operator's release. The driver is the host's: driver installation is always off."""

    install: bool = True
    """False where somebody else runs it: RuntimeClass `nvidia` must then exist before the first `up`."""
    namespace: ChartName = "gpu-operator"
    """The operator's namespace, also where somebody else installed it."""
    chart: ChartSettings = ChartSettings()
    images: ImageSettings = ImageSettings()
    toolkit_env: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], str], AfterValidator(_fractions_keep_their_gpu)
    ] = {}
    """Added to the container toolkit's environment; wins over what the distribution sets."""
    cdi: bool = True
    """`cdi.enabled`. k8s-snap 1.32 ships containerd 1.6, which needs false (k8s-snap#2388)."""
    mig_strategy: MigStrategy = MigStrategy.SINGLE
    device_id_strategy: DeviceIdStrategy | None = None
    """Cluster-wide. Null: index on Tegra, where the plugin finds no device by UUID, and uuid on x86. A mixed cluster
    keeps index and sets kai.cdi_enabled: false, so that KAI's UUIDs reach x86 nodes without CDI names."""
    dcgm_exporter: DcgmExporterSettings = DcgmExporterSettings()
    service_discovery: bool = True
    """A ConfigMap that names the operator's and DCGM's metrics endpoints for other tools of the cluster."""
    timeout_seconds: Annotated[int, Field(ge=30, le=7200)] = 900
    """Bound of each wait: for the chart's hooks, for the release's pods, for RuntimeClass, for GPUs."""
