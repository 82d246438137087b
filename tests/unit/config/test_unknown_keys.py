"""An unknown key is an error at every level, and names the keys that there are."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from config.admission import AdmissionSettings, CertManagerCertificates, OwnCertificates, StackCertificates
from config.charts import ChartSettings, ImageSettings
from config.cluster import ClusterSettings
from config.gpu_operator import DcgmExporterSettings, GpuOperatorSettings
from config.gvirtus import FrontendSettings, GvirtusBackend, GvirtusSettings
from config.hosts import (
    CdiSettings,
    DialSettings,
    DockerSettings,
    HostSettings,
    HostTimeouts,
    HostToolkit,
    SshEndpoint,
    SshSettings,
)
from config.kai import KaiSettings, QueueSettings, QueueShare, SchedulerSettings
from config.model import Settings
from config.monitoring import DashboardSettings, MonitoringSettings
from config.platform import TegraNode, TegraPlatform, UnifiedMemoryNode, X86Platform
from config.pod_guard import PodGuardSettings
from config.reservation import ReservationSettings
from config.sharing import KaiProfile, TimeSlicingProfile
from config.stack import StackSettings
from testbed.stacks import (
    Json,
    assert_refused,
    cert_manager,
    changed,
    gvirtus,
    mixed,
    monitoring_full,
    stack_certificates,
    time_slicing,
    webhook,
)
from tests.support.hosts.settings import full_host, jetson_with_host


def own_certificates() -> Json:
    """A stack that says where its certificates come from."""
    return changed(webhook(), "admission.certificates", {"kind": "own"})


def _with_host() -> Json:
    return jetson_with_host(full_host())


_LEVELS: dict[type[Settings], tuple[Any, str]] = {
    StackSettings: (mixed, ""),
    ClusterSettings: (mixed, "cluster"),
    TegraPlatform: (mixed, "platform"),
    TegraNode: (mixed, "platform.tegra_nodes.jetson-1"),
    UnifiedMemoryNode: (mixed, "platform.unified_memory_nodes.spark-1"),
    X86Platform: (time_slicing, "platform"),
    ReservationSettings: (mixed, "reservation"),
    PodGuardSettings: (mixed, "pod_guard"),
    GpuOperatorSettings: (mixed, "gpu_operator"),
    ChartSettings: (mixed, "gpu_operator.chart"),
    ImageSettings: (mixed, "kai.images"),
    DcgmExporterSettings: (mixed, "gpu_operator.dcgm_exporter"),
    KaiSettings: (mixed, "kai"),
    SchedulerSettings: (mixed, "kai.scheduler"),
    QueueSettings: (mixed, "kai.queues.robots"),
    QueueShare: (mixed, "kai.queues.robots.gpu"),
    AdmissionSettings: (cert_manager, "admission"),
    CertManagerCertificates: (cert_manager, "admission.certificates"),
    OwnCertificates: (own_certificates, "admission.certificates"),
    StackCertificates: (stack_certificates, "admission.certificates"),
    KaiProfile: (time_slicing, "node_profiles.fractions"),
    HostSettings: (_with_host, "hosts.jetson-1"),
    SshSettings: (_with_host, "hosts.jetson-1.ssh"),
    SshEndpoint: (_with_host, "hosts.jetson-1.ssh.bastion"),
    DialSettings: (_with_host, "hosts.jetson-1.ssh.dial"),
    HostToolkit: (_with_host, "hosts.jetson-1.toolkit"),
    DockerSettings: (_with_host, "hosts.jetson-1.docker"),
    CdiSettings: (_with_host, "hosts.jetson-1.cdi"),
    HostTimeouts: (_with_host, "hosts.jetson-1.timeouts"),
    TimeSlicingProfile: (time_slicing, "node_profiles.sliced"),
    GvirtusSettings: (gvirtus, "gvirtus"),
    GvirtusBackend: (gvirtus, "gvirtus.backends.gpu-b"),
    FrontendSettings: (gvirtus, "gvirtus.frontends"),
    MonitoringSettings: (monitoring_full, "monitoring"),
    DashboardSettings: (monitoring_full, "monitoring.dashboards"),
}


def _models(annotation: Any) -> Iterator[type[Settings]]:  # noqa: ANN401 - an annotation is anything
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models(field.annotation)
    for argument in get_args(annotation):
        yield from _models(argument)


def test_every_model_of_a_stack_is_tested_here() -> None:
    assert set(_models(StackSettings)) == _LEVELS.keys()


@pytest.mark.parametrize(("model", "level"), _LEVELS.items(), ids=lambda part: getattr(part, "__name__", ""))
def test_a_misspelt_key_names_the_allowed_keys_and_the_near_one(model: type[Settings], level: tuple[Any, str]) -> None:
    make, path = level
    *_, key = model.model_fields
    assert_refused(
        changed(make(), f"{path}.{key}s".lstrip("."), "x"),
        path,
        f"unknown key '{key}s'",
        f"Allowed here: {', '.join(model.model_fields)}.",
        f"Did you mean '{key}'?",
    )


@pytest.mark.parametrize("model", _LEVELS)
def test_a_removed_key_is_none_that_there_is(model: type[Settings]) -> None:
    assert model.removed_keys.keys().isdisjoint(model.model_fields)


def test_a_key_that_is_near_to_none_gets_no_guess() -> None:
    stack = changed(mixed(), "reservation.zzz", 1)
    assert_refused(
        stack,
        "reservation",
        "unknown key 'zzz'. Allowed here: overrides, privilege, privilege_by_node, supplemental_groups, carrier.",
    )
    with pytest.raises(AssertionError):
        assert_refused(stack, "reservation", "Did you mean")
