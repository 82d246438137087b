"""Labels of the nodes that a stack names, and of no others."""

import pytest

from manifests.node_labels import node_labels
from testbed.stacks import changed, jetson, mixed, parse, spark, time_slicing, x86


def test_a_jetson_gets_memory_count_platform_operand_switches_and_the_mark_that_keeps_them() -> None:
    assert node_labels(parse(jetson())) == {
        "jetson-1": {
            "feature.node.kubernetes.io/pci-10de.present": "true",
            "kai-anywhere.io/platform": "tegra",
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.deploy.container-toolkit": "false",
            "nvidia.com/gpu.deploy.dcgm": "false",
            "nvidia.com/gpu.deploy.dcgm-exporter": "false",
            "nvidia.com/gpu.deploy.gpu-feature-discovery": "false",
            "nvidia.com/gpu.deploy.mig-manager": "false",
            "nvidia.com/gpu.memory": "122880",
        }
    }


def test_the_operators_toolkit_stays_on_where_the_stack_says_so() -> None:
    labels = node_labels(parse(changed(jetson(), "platform.container_toolkit", "operator")))
    assert "nvidia.com/gpu.deploy.container-toolkit" not in labels["jetson-1"]


def test_an_x86_stack_names_no_node_by_itself() -> None:
    assert node_labels(parse(x86())) == {}


def test_a_spark_gets_memory_and_platform_and_keeps_all_operands() -> None:
    assert node_labels(parse(spark())) == {
        "spark-1": {"kai-anywhere.io/platform": "x86", "nvidia.com/gpu.memory": "114688"}
    }


def test_a_mixed_stack_labels_each_node_for_what_it_is() -> None:
    labels = node_labels(parse(mixed()))
    assert list(labels) == ["jetson-1", "jetson-2", "spark-1"]
    assert [ours["kai-anywhere.io/platform"] for ours in labels.values()] == ["tegra", "tegra", "x86"]
    assert labels["jetson-2"]["nvidia.com/gpu.count"] == "2"
    assert "nvidia.com/gpu.count" not in labels["spark-1"], "GPU Feature Discovery counts GPUs there"


def test_a_profile_selects_the_plugins_configuration_and_keeps_kai_off_time_sliced_nodes() -> None:
    sliced = {"kai.scheduler/node-pool": "time-slicing", "nvidia.com/device-plugin.config": "sliced"}
    assert node_labels(parse(time_slicing())) == {
        "gpu-7": sliced,
        "gpu-8": sliced,
        "gpu-9": {"nvidia.com/device-plugin.config": "fractions"},
    }


def test_a_profile_adds_to_a_jetsons_labels() -> None:
    profiles = {"sliced": {"sharing": "time_slicing", "nodes": ["jetson-1"], "replicas": 2}}
    plain = node_labels(parse(jetson()))["jetson-1"]
    labels = node_labels(parse(changed(jetson(), "node_profiles", profiles)))["jetson-1"]
    assert labels.keys() - plain.keys() == {"kai.scheduler/node-pool", "nvidia.com/device-plugin.config"}
    assert plain.items() <= labels.items()


@pytest.mark.parametrize("stack", [jetson, mixed, spark, time_slicing])
def test_labels_are_sorted_so_that_nothing_churns(stack: object) -> None:
    assert callable(stack)
    labels = node_labels(parse(stack()))
    assert list(labels) == sorted(labels)
    assert all(list(ours) == sorted(ours) for ours in labels.values())
