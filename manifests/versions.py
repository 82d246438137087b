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
    # 0.18 has long-term support until September 2027, and 0.17 ended with it (upstream's SUPPORT.md: even minors get a
    # year). Of its patches the newest known one (October 2026): those after 0.18.0 close vulnerabilities, and KAI
    # Resource Management ships each under the same number.
    # renovate: datasource=github-releases depName=kai-scheduler/KAI-Scheduler
    version="v0.18.6",
)

GPU_OPERATOR = ChartPin(
    name="gpu-operator",
    source="https://helm.ngc.nvidia.com/nvidia",
    # renovate: datasource=github-releases depName=NVIDIA/gpu-operator
    version="v26.7.2",
)

DEVICE_PLUGIN_IMAGE = (
    # renovate: datasource=docker depName=ghcr.io/squat/generic-device-plugin
    "ghcr.io/squat/generic-device-plugin:0.2.0@sha256:66c8d5c270eb2b721f1064c549b9b7898152a6d2f0163380a5d37dc7636c20ff"
)
"""squat/generic-device-plugin (Apache-2.0), the index of its images for amd64, arm64 and arm."""
