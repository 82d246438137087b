"""Every upstream version this program was checked against, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChartPin:
    """An official chart.

    Attributes:
        name: the chart's name.
        source: an OCI reference, or the address of a chart repository.
        version: the release whose value paths are checked in tests/data/charts.
    """

    name: str
    source: str
    version: str


KAI_SCHEDULER = ChartPin(
    name="kai-scheduler",
    source="oci://ghcr.io/kai-scheduler/kai-scheduler/kai-scheduler",
    # renovate: datasource=github-releases depName=kai-scheduler/KAI-Scheduler
    version="v0.17.0",
)

GPU_OPERATOR = ChartPin(
    name="gpu-operator",
    source="https://helm.ngc.nvidia.com/nvidia",
    # renovate: datasource=github-releases depName=NVIDIA/gpu-operator
    version="v26.7.0",
)
