"""Every component registers its public attributes as outputs, on every path."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pulumi
import pytest
from pulumi_kubernetes import Provider

from components.gpu_operator import GpuOperator, GpuOperatorArgs
from components.gvirtus import Gvirtus, GvirtusArgs
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from components.kai_scheduler import KaiScheduler, KaiSchedulerArgs
from components.kubernetes import Labeller
from components.monitoring import Monitoring, MonitoringArgs
from components.node_labels import NodeLabels, NodeLabelsArgs
from components.pod_guard import PodGuard, PodGuardArgs
from components.reservation_overrides import ReservationOverrides, ReservationOverridesArgs
from config.stack import StackSettings
from manifests.versions import GPU_OPERATOR, KAI_SCHEDULER
from testbed.stacks import STACKS, WEBHOOK_STACKS, changed, parse
from tests.support.recording_monitor import SERVICE_ADDRESS, record
from tests.unit.components.programs import KUBECONFIG, preview, up

_Make: TypeAlias = Callable[[StackSettings], pulumi.ComponentResource]


def _provider() -> Provider:
    return Provider("cluster", context="a")


def _labeller() -> Labeller:
    return Labeller(_provider(), KUBECONFIG, together=True)


_MAKE: dict[type[pulumi.ComponentResource], _Make] = {
    NodeLabels: lambda settings: NodeLabels("part", NodeLabelsArgs(settings, _labeller())),
    GpuOperator: lambda settings: GpuOperator("part", GpuOperatorArgs(settings, _provider())),
    ReservationOverrides: lambda settings: ReservationOverrides(
        "part", ReservationOverridesArgs(settings, _provider())
    ),
    Monitoring: lambda settings: Monitoring("part", MonitoringArgs(settings, _provider())),
    PodGuard: lambda settings: PodGuard("part", PodGuardArgs(settings, _provider())),
    KaiScheduler: lambda settings: KaiScheduler("part", KaiSchedulerArgs(settings, _provider())),
    Gvirtus: lambda settings: Gvirtus("part", GvirtusArgs(settings, _provider(), _labeller())),
    KaiAnywhere: lambda settings: KaiAnywhere("part", KaiAnywhereArgs(settings, "uid", KUBECONFIG)),
}


def _public(component: pulumi.ComponentResource) -> dict[str, pulumi.Output[Any]]:
    return {
        name: value for name, value in vars(component).items() if isinstance(value, pulumi.Output) and name != "urn"
    }


@pytest.mark.parametrize(
    "name",
    ["jetson", "x86", "never", "operator-elsewhere", "time-slicing", "gvirtus", "gvirtus-full", "gvirtus-webhook"],
)
@pytest.mark.parametrize("component", _MAKE, ids=lambda component: component.__name__)
def test_the_outputs_are_the_public_attributes_by_name_and_value(
    component: type[pulumi.ComponentResource], name: str, config_path: str
) -> None:
    settings = parse(changed(STACKS[name](), "cluster.kubeconfig", config_path))
    seen: dict[str, Any] = {}

    def program() -> pulumi.Output[Any]:
        public = _public(_MAKE[component](settings))
        return pulumi.Output.all(**public).apply(seen.update)

    graph = record(program, preview=False)
    annotated = {
        name for name, kind in component.__annotations__.items() if str(kind).startswith("pulumi.output.Output")
    }
    assert seen.keys() == annotated, "an output is declared in the class"
    # The SDK leaves a null out.
    assert graph.outputs[f"{component.__name__}:part"] == {
        key: value for key, value in seen.items() if value is not None
    }


def test_the_top_tells_what_was_installed(config_path: str) -> None:
    outputs = up(STACKS["jetson"](), config_path).outputs["KaiAnywhere:kai-anywhere"]
    assert outputs == {
        "platform": "tegra",
        "tegra_nodes": ["jetson-1"],
        "gpu_operator_version": GPU_OPERATOR.version,
        "kai_version": KAI_SCHEDULER.version,
        "queues": ["default-parent-queue", "default-queue", "edge", "robots"],
        "gvirtus_backends": {},
        "gpu_memory_mib": {},
    }


@pytest.mark.parametrize("name", ["gvirtus", "gvirtus-webhook"])
def test_the_top_tells_where_remote_gpus_answer(name: str, config_path: str) -> None:
    outputs = up(STACKS[name](), config_path).outputs["KaiAnywhere:kai-anywhere"]
    assert outputs["gvirtus_backends"] == {
        "gpu-a": f"{SERVICE_ADDRESS}:9999",
        "gpu-b": f"{SERVICE_ADDRESS}:14833",
    }


@pytest.mark.parametrize("name", ["x86", "never"])
def test_a_stack_without_overrides_tells_no_tegra_nodes(name: str) -> None:
    assert preview(STACKS[name]()).outputs["KaiAnywhere:kai-anywhere"]["tegra_nodes"] == []


def test_an_operator_that_is_not_ours_has_no_version() -> None:
    outputs = preview(STACKS["operator-elsewhere"]()).outputs
    assert outputs["GpuOperator:gpu-operator"] == {"namespace": "gpu-operator"}
    assert "gpu_operator_version" not in outputs["KaiAnywhere:kai-anywhere"]


@pytest.mark.parametrize("name", STACKS)
def test_every_component_registers_outputs_in_a_preview_too(name: str) -> None:
    graph = preview(STACKS[name]())
    components = {key for key, registered in graph.by_key.items() if registered.type.startswith("kai-anywhere:")}
    parts = ("gvirtus" in STACKS[name](), name in WEBHOOK_STACKS, name.startswith("monitoring"))
    assert len(components) == 6 + sum(parts)
    assert graph.outputs.keys() == components
