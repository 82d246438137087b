"""One grammar for every component's token, and each is its class's."""

import re

import pulumi
import pytest

from components import tokens
from components.admission_server import AdmissionServer
from components.gpu_operator import GpuOperator
from components.gvirtus import Gvirtus
from components.hosts.host import Host
from components.hosts.hosts import Hosts
from components.kai_anywhere import KaiAnywhere
from components.kai_scheduler import KaiScheduler
from components.monitoring import Monitoring
from components.node_labels import NodeLabels
from components.pod_guard import PodGuard
from components.reservation_overrides import ReservationOverrides
from components.verification import Verification
from package.node_labels import ManyNodeLabels
from testbed.stacks import changed, gvirtus, monitoring, webhook
from tests.support.hosts.settings import jetson_with_host, local_host
from tests.unit.components.programs import preview

_COMPONENTS: set[type[pulumi.ComponentResource]] = {
    AdmissionServer,
    GpuOperator,
    Gvirtus,
    Host,
    Hosts,
    KaiAnywhere,
    KaiScheduler,
    Monitoring,
    NodeLabels,
    PodGuard,
    ReservationOverrides,
    Verification,
}
_TOKENS = {name: token for name, token in vars(tokens).items() if name.isupper()}


@pytest.mark.parametrize("token", _TOKENS.values())
def test_a_token_is_package_module_and_class(token: str) -> None:
    assert re.fullmatch(r"kai-anywhere:index:([A-Z][a-z]+)+", token)


def test_every_class_has_its_token_and_no_token_is_left_over() -> None:
    assert sorted(_TOKENS.values()) == sorted(
        f"kai-anywhere:index:{name}" for name in {*(cls.__name__ for cls in _COMPONENTS), ManyNodeLabels.__name__}
    )


def test_a_token_is_registered_by_the_class_that_it_names() -> None:
    names = {
        registered.type: registered.key
        for stack in (
            changed(gvirtus(), "validation", "after_up"),
            webhook(),
            monitoring(),
            jetson_with_host(local_host()),
        )
        for registered in preview(stack).registrations
        if "index" in registered.type
    }
    assert names == {
        tokens.KAI_ANYWHERE: "KaiAnywhere:kai-anywhere",
        tokens.NODE_LABELS: "NodeLabels:node-labels",
        tokens.GPU_OPERATOR: "GpuOperator:gpu-operator",
        tokens.RESERVATION_OVERRIDES: "ReservationOverrides:reservation",
        tokens.POD_GUARD: "PodGuard:pod-guard",
        tokens.ADMISSION_SERVER: "AdmissionServer:admission",
        tokens.HOST: "Host:hosts-jetson-1",
        tokens.HOSTS: "Hosts:hosts",
        tokens.KAI_SCHEDULER: "KaiScheduler:kai-scheduler",
        tokens.GVIRTUS: "Gvirtus:gvirtus",
        tokens.MONITORING: "Monitoring:monitoring",
        tokens.VERIFICATION: "Verification:verification",
    }
