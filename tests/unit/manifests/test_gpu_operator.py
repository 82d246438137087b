"""The GPU Operator's release, the objects beside it, and what is absent per platform."""

import pytest
import yaml

from manifests import gpu_operator
from testbed.stacks import (
    Json,
    air_gapped,
    changed,
    jetson,
    k8s_snap,
    mixed,
    monitoring_full,
    parse,
    spark,
    time_slicing,
    without,
    x86,
)


def _values(stack: Json) -> Json:
    return dict(gpu_operator.release(parse(stack)).values)


@pytest.mark.parametrize("stack", [jetson(), x86()])
def test_the_driver_is_the_hosts(stack: Json) -> None:
    assert _values(stack)["driver"] == {"enabled": False}


@pytest.mark.parametrize(
    ("stack", "strategy"),
    [
        (jetson(), "index"),
        (x86(), "uuid"),
        (changed(jetson(), "gpu_operator.device_id_strategy", "uuid"), "uuid"),
        (changed(x86(), "gpu_operator.device_id_strategy", "index"), "index"),
    ],
)
def test_gpus_are_named_by_index_on_tegra_and_by_uuid_elsewhere_unless_a_stack_chooses(
    stack: Json, strategy: str
) -> None:
    assert _values(stack)["devicePlugin"]["env"] == [{"name": "DEVICE_ID_STRATEGY", "value": strategy}]


_K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
_MICROK8S = "/var/snap/microk8s/current/args"


@pytest.mark.parametrize(
    ("distribution", "environment"),
    [
        ("kubeadm", {}),
        (
            "k3s",
            {
                "CONTAINERD_CONFIG": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
                "CONTAINERD_SOCKET": _K3S_SOCKET,
            },
        ),
        ("rke2", {"CONTAINERD_SOCKET": _K3S_SOCKET}),
        (
            "microk8s",
            {
                "CONTAINERD_CONFIG": f"{_MICROK8S}/containerd-template.toml",
                "CONTAINERD_SOCKET": "/var/snap/microk8s/common/run/containerd.sock",
                "RUNTIME_CONFIG_SOURCE": f"file={_MICROK8S}/containerd.toml",
            },
        ),
        (
            "k8s-snap",
            {
                "CONTAINERD_CONFIG": "/etc/containerd/config.toml",
                "CONTAINERD_SOCKET": "/run/containerd/containerd.sock",
                "RUNTIME_DROP_IN_CONFIG": "/etc/containerd/conf.d/99-nvidia.toml",
            },
        ),
    ],
)
def test_the_distribution_says_where_containerd_is(distribution: str, environment: dict[str, str]) -> None:
    settings = parse(changed(x86(), "cluster.distribution", distribution))
    assert gpu_operator.toolkit_environment(settings) == environment
    toolkit = gpu_operator.release(settings).values["toolkit"]
    listed = [{"name": name, "value": value} for name, value in environment.items()]
    assert toolkit.get("env", "absent") == (listed or "absent")


def test_the_base_directory_of_k8s_snap_leads_every_path() -> None:
    environment = gpu_operator.toolkit_environment(parse(k8s_snap()))
    assert len(environment) == 3
    assert all(path.startswith("/var/lib/k8s-containerd/") for path in environment.values())


def _runtime_mode(stack: Json) -> str | None:
    return gpu_operator.toolkit_environment(parse(stack)).get("NVIDIA_CONTAINER_RUNTIME_MODE")


@pytest.mark.parametrize("stack", [x86(), changed(jetson(), "platform.container_toolkit", "operator")])
def test_the_runtime_mode_goes_to_the_operators_own_runtime(stack: Json) -> None:
    assert _runtime_mode(changed(stack, "platform.container_runtime_mode", "legacy")) == "legacy"
    assert _runtime_mode(stack) is None, "auto says nothing"


def test_the_mode_of_jetsons_with_a_toolkit_of_their_own_does_not_reach_x86_nodes() -> None:
    assert jetson()["platform"]["container_toolkit"] == "host"
    assert _runtime_mode(changed(jetson(), "platform.container_runtime_mode", "csv")) is None


@pytest.mark.parametrize("stack", [x86(), jetson(), changed(jetson(), "platform.container_runtime_mode", "cdi")])
def test_where_kai_writes_bare_uuids_the_operators_runtime_is_told_to_resolve_them(stack: Json) -> None:
    assert _runtime_mode(changed(stack, "kai.cdi_enabled", False)) == "auto"
    assert _runtime_mode(changed(stack, "kai.cdi_enabled", True)) is None, "CDI names fit the operator's own mode"


@pytest.mark.parametrize("stack", [x86(), mixed()])
def test_a_mode_that_resolves_bare_uuids_stays_as_a_stack_says_it(stack: Json) -> None:
    bare = changed(stack, "kai.cdi_enabled", False)
    own = {"NVIDIA_CONTAINER_RUNTIME_MODE": "legacy"}
    assert _runtime_mode(changed(bare, "gpu_operator.toolkit_env", own)) == "legacy"
    assert _runtime_mode(changed(bare, "platform.container_runtime_mode", "legacy")) == "legacy"


def test_a_stacks_own_toolkit_environment_wins() -> None:
    own = {"CONTAINERD_SOCKET": "/run/own.sock", "A_FIRST": "1"}
    environment = gpu_operator.toolkit_environment(parse(changed(jetson(), "gpu_operator.toolkit_env", own)))
    assert list(environment) == ["A_FIRST", "CONTAINERD_CONFIG", "CONTAINERD_SOCKET"], "sorted by name"
    assert environment["CONTAINERD_SOCKET"] == "/run/own.sock"


def test_a_registry_reaches_every_component_and_node_feature_discovery() -> None:
    values = _values(without(air_gapped(), "cluster.tolerated_taints"))
    components = ("operator", "validator", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager")
    for component in components:
        assert values[component]["repository"] == "registry.example.com:5000/gpu_operator"
        assert values[component]["imagePullPolicy"] == "Never"
        assert values[component]["imagePullSecrets"] == ["site", "team"]
    assert values["node-feature-discovery"] == {
        "image": {
            "repository": "registry.example.com:5000/gpu_operator/node-feature-discovery",
            "pullPolicy": "Never",
        },
        "imagePullSecrets": [{"name": "site"}, {"name": "team"}],
    }


def test_the_charts_own_registries_stay_without_one() -> None:
    values = _values(x86())
    assert "node-feature-discovery" not in values
    assert not any("repository" in images or "imagePullSecrets" in images for images in values.values())


def test_a_jetson_is_found_by_a_node_feature_rule_of_its_name() -> None:
    rule = gpu_operator.tegra_feature_rule(parse(mixed()))
    assert rule is not None
    [only] = rule["spec"]["rules"]
    assert only["labels"] == {"feature.node.kubernetes.io/pci-10de.present": "true"}
    assert only["matchFeatures"] == [
        {
            "feature": "system.name",
            "matchExpressions": {"nodename": {"op": "In", "value": ["jetson-1", "jetson-2"]}},
        }
    ]


@pytest.mark.parametrize("stack", [x86(), spark()])
def test_an_x86_stack_has_no_node_feature_rule(stack: Json) -> None:
    assert gpu_operator.tegra_feature_rule(parse(stack)) is None


def test_without_node_profiles_the_device_plugin_has_no_configuration() -> None:
    assert gpu_operator.time_slicing_config(parse(x86())) is None
    assert "config" not in _values(x86())["devicePlugin"]


def test_profiles_replicate_gpus_only_where_they_say_so() -> None:
    settings = parse(time_slicing())
    config_map = gpu_operator.time_slicing_config(settings)
    assert config_map is not None
    profiles = {name: yaml.safe_load(text) for name, text in config_map["data"].items()}
    plain = {"version": "v1"}
    time_sliced = {
        "renameByDefault": False,
        "failRequestsGreaterThanOne": False,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }
    assert profiles == {
        "default": plain,
        "fractions": plain,
        "sliced": {"version": "v1", "sharing": {"timeSlicing": time_sliced}},
    }
    assert gpu_operator.release(settings).values["devicePlugin"]["config"] == {
        "name": config_map["metadata"]["name"],
        "default": "default",
    }


def _profiles_name(stack: Json) -> str:
    config_map = gpu_operator.time_slicing_config(parse(stack))
    assert config_map is not None
    return str(config_map["metadata"]["name"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("node_profiles.sliced.replicas", 5),
        ("node_profiles.sliced.fail_requests_greater_than_one", True),
        ("node_profiles.more", {"sharing": "kai", "nodes": ["gpu-10"]}),
    ],
)
def test_the_name_of_the_profiles_changes_with_their_content(path: str, value: object) -> None:
    name = _profiles_name(changed(time_slicing(), path, value))
    assert name != _profiles_name(time_slicing()), "the operator does not look at the content: only a name is seen"


@pytest.mark.parametrize(
    ("path", "value"),
    [("node_profiles.sliced.nodes", ["gpu-1"]), ("kai.default_queue", False), ("gpu_operator.namespace", "other")],
)
def test_the_name_of_the_profiles_stays_with_their_content(path: str, value: object) -> None:
    assert _profiles_name(changed(time_slicing(), path, value)) == _profiles_name(time_slicing())


def test_a_prometheus_that_selects_by_labels_finds_dcgm_exporter_by_those_of_the_stack() -> None:
    asked = changed(monitoring_full(), "gpu_operator.dcgm_exporter.service_monitor", True)
    assert _values(asked)["dcgmExporter"]["serviceMonitor"] == {
        "enabled": True,
        "additionalLabels": {"release": "kube-prometheus-stack"},
    }
    unlabelled = changed(asked, "monitoring.service_monitor_labels", {})
    assert _values(unlabelled)["dcgmExporter"]["serviceMonitor"] == {"enabled": True}
    assert _values(monitoring_full())["dcgmExporter"]["serviceMonitor"] == {"enabled": False}


def test_service_discovery_names_both_endpoints_in_the_operators_namespace() -> None:
    result = gpu_operator.service_discovery(parse(changed(x86(), "gpu_operator.namespace", "gpus")))
    assert result is not None
    assert result["metadata"]["namespace"] == "gpus"
    assert result["data"] == {
        "gpu-operator-metrics": "http://gpu-operator.gpus.svc.cluster.local:8080/metrics",
        "dcgm-exporter-metrics": "http://nvidia-dcgm-exporter.gpus.svc.cluster.local:9400/metrics",
    }


def test_service_discovery_does_not_name_an_exporter_that_is_off() -> None:
    result = gpu_operator.service_discovery(parse(changed(x86(), "gpu_operator.dcgm_exporter.enabled", False)))
    assert result is not None
    assert list(result["data"]) == ["gpu-operator-metrics"]


def test_service_discovery_can_be_turned_off() -> None:
    assert gpu_operator.service_discovery(parse(changed(x86(), "gpu_operator.service_discovery", False))) is None


def test_the_operators_namespace_is_privileged_since_its_operands_are() -> None:
    labels = gpu_operator.operator_namespace(parse(x86()))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_taints_that_a_stack_names_are_tolerated_besides_those_that_the_chart_tolerates() -> None:
    dedicated = {"key": "dedicated", "operator": "Equal", "value": "gpus", "effect": "NoSchedule"}
    values = _values(air_gapped())
    control_plane = "node-role.kubernetes.io/control-plane"
    discovery = values["node-feature-discovery"]
    keys = {
        "operands": [toleration["key"] for toleration in values["daemonsets"]["tolerations"]],
        "operator": [toleration["key"] for toleration in values["operator"]["tolerations"]],
        **{
            name: [toleration["key"] for toleration in discovery[name]["tolerations"]]
            for name in ("master", "worker", "gc")
        },
    }
    assert keys == {
        "operands": ["nvidia.com/gpu", "dedicated"],
        "operator": [control_plane, "dedicated"],
        "master": [control_plane, "dedicated"],
        "worker": [control_plane, "nvidia.com/gpu", "dedicated"],
        "gc": ["dedicated"],
    }
    assert dedicated in values["daemonsets"]["tolerations"]


def test_a_stack_without_tolerations_leaves_the_charts_own_alone() -> None:
    values = _values(without(air_gapped(), "cluster.tolerated_taints"))
    assert "daemonsets" not in values
    assert "tolerations" not in values["operator"]
    assert not {"worker", "master", "gc"} & values["node-feature-discovery"].keys()
