"""Rules of `platform` and `reservation`: what differs between Jetson and x86 cannot be mixed up."""

import pytest

from config.admission import Webhook
from testbed.stacks import (
    STACKS,
    assert_refused,
    changed,
    jetson,
    mixed,
    never,
    parse,
    refusal,
    rungs,
    unprivileged,
    without,
    x86,
)


def test_tegra_nodes_in_an_x86_stack_say_what_would_happen_and_what_to_do() -> None:
    assert_refused(
        changed(x86(), "platform.tegra_nodes", {"jetson-1": {"gpu_memory_mib": 30720}}),
        "platform",
        "tegra_nodes are listed in an x86 stack",
        "ERROR_LIBRARY_NOT_FOUND",
        "Set kind: tegra",
        "or remove tegra_nodes",
    )


@pytest.mark.parametrize("key", ["driver_library_path", "device_path", "container_toolkit"])
def test_no_other_tegra_setting_exists_in_an_x86_stack(key: str) -> None:
    assert_refused(changed(x86(), f"platform.{key}", "/dev"), "platform", f"unknown key '{key}'")


def test_an_unknown_platform_names_the_known_ones() -> None:
    assert_refused(changed(x86(), "platform.kind", "arm"), "platform.kind", "'tegra', 'x86'", found="arm")


def test_a_platform_has_a_kind() -> None:
    assert_refused(
        without(x86(), "platform.kind"), "platform", "the key 'kind' is required here: it decides which other keys"
    )


def test_a_tegra_stack_has_at_least_one_tegra_node() -> None:
    assert_refused(changed(jetson(), "platform.tegra_nodes", {}), "platform.tegra_nodes", "at least 1 item")


def test_a_node_is_a_jetson_or_a_spark_but_not_both() -> None:
    assert_refused(
        changed(mixed(), "platform.unified_memory_nodes", {"jetson-1": {"gpu_memory_mib": 30720}}),
        "platform",
        "node 'jetson-1' is listed under tegra_nodes and unified_memory_nodes",
        "remove one entry",
    )


@pytest.mark.parametrize("name", ["Jetson", "jetson_1", "-jetson", "a" * 254, "jetson..1"])
def test_a_nodes_name_is_one_that_kubernetes_allows(name: str) -> None:
    stack = jetson()
    stack["platform"]["tegra_nodes"] = {name: {"gpu_memory_mib": 30720}}
    assert_refused(stack, f"platform.tegra_nodes.{name}", "not a Kubernetes object name", found=name)


def test_a_nodes_name_may_be_a_host_name_with_dots() -> None:
    stack = jetson()
    stack["platform"]["tegra_nodes"] = {"jetson-1.example.com": {"gpu_memory_mib": 30720}}
    assert parse(stack).overrides_apply


@pytest.mark.parametrize("count", [0, 17])
def test_a_jetson_has_a_believable_number_of_gpus(count: int) -> None:
    key = "platform.tegra_nodes.jetson-1.gpu_count"
    assert_refused(changed(jetson(), key, count), key, "or equal to", found=count)


def test_an_unknown_runtime_mode_names_the_known_ones() -> None:
    key = "platform.container_runtime_mode"
    assert_refused(changed(jetson(), key, "oci"), key, "'auto', 'csv', 'legacy' or 'cdi'", found="oci")


_TOOLKIT_MODE = "gpu_operator.toolkit_env.NVIDIA_CONTAINER_RUNTIME_MODE"


@pytest.mark.parametrize(
    ("stack", "key"),
    [
        (x86(), "platform.container_runtime_mode"),
        (changed(jetson(), "platform.container_toolkit", "operator"), "platform.container_runtime_mode"),
        (x86(), _TOOLKIT_MODE),
        (mixed(), _TOOLKIT_MODE),
    ],
)
def test_bare_uuids_and_a_runtime_that_takes_cdi_names_alone_are_both_named(stack: dict[str, object], key: str) -> None:
    assert_refused(
        changed(changed(stack, "kai.cdi_enabled", False), key, "cdi"),
        "",
        "kai.cdi_enabled is false",
        f"{key} is 'cdi'",
        f"Remove {key}, which then is auto, or kai.cdi_enabled",
    )


@pytest.mark.parametrize("cdi_enabled", [None, True])
def test_cdi_names_go_with_a_runtime_that_takes_them(*, cdi_enabled: bool | None) -> None:
    stack = changed(x86(), "platform.container_runtime_mode", "cdi")
    assert parse(changed(stack, "kai.cdi_enabled", cdi_enabled)).kai.cdi_enabled is cdi_enabled


def test_cdi_names_that_nobody_makes_are_refused() -> None:
    without_cdi = changed(x86(), "gpu_operator.cdi", False)
    assert parse(without_cdi).gpu_operator.cdi is False
    assert_refused(
        changed(without_cdi, "kai.cdi_enabled", True),
        "",
        "kai.cdi_enabled is true",
        "gpu_operator.cdi is false",
        "Remove kai.cdi_enabled, or gpu_operator.cdi",
    )


def test_bare_uuids_go_with_jetsons_whose_own_toolkit_takes_cdi_names() -> None:
    stack = changed(jetson(), "platform.container_runtime_mode", "cdi")
    assert parse(changed(stack, "kai.cdi_enabled", False)).platform.container_runtime_mode == "cdi"


def test_the_toolkit_has_one_owner() -> None:
    key = "platform.container_toolkit"
    assert_refused(changed(jetson(), key, "both"), key, "'host' or 'operator'", found="both")


def test_the_policy_carrier_needs_kubernetes_1_36() -> None:
    assert_refused(
        changed(changed(jetson(), "reservation.carrier", "policy"), "cluster.kubernetes_version", "1.35"),
        "",
        "needs Kubernetes 1.36 or later",
        "cluster.kubernetes_version is 1.35",
        "Upgrade the cluster",
        "set cluster.mutating_policies: v1beta1",
        "use reservation.carrier: webhook",
        "set reservation.overrides: never",
    )


@pytest.mark.parametrize("version", ["1.34", "v1.35", None])
@pytest.mark.parametrize("carrier", ["policy", "auto"])
def test_policies_are_v1beta1_where_the_stack_says_so(version: str | None, carrier: str) -> None:
    stack = changed(jetson(), "cluster.mutating_policies", "v1beta1")
    stack = changed(changed(stack, "cluster.kubernetes_version", version), "reservation.carrier", carrier)
    settings = parse(stack)
    assert settings.cluster.policies_version == "v1beta1"
    assert (settings.policy_carriers, settings.webhooks) == (("reservation",), ())


def test_v1beta1_is_refused_where_no_api_server_has_it() -> None:
    stack = changed(changed(jetson(), "cluster.mutating_policies", "v1beta1"), "cluster.kubernetes_version", "1.33")
    assert_refused(stack, "cluster", "is for Kubernetes 1.34 and later", "is 1.33", "Remove mutating_policies")


def test_another_version_of_policies_is_refused() -> None:
    key = "cluster.mutating_policies"
    assert_refused(changed(jetson(), key, "v1"), key, "'v1beta1'", found="v1")


@pytest.mark.parametrize(("version", "policies"), [(None, "v1"), ("1.36", "v1"), ("2.0", "v1"), ("1.35", None)])
def test_auto_is_the_policy_where_the_stated_version_serves_it_and_else_the_webhook(
    version: str | None, policies: str | None
) -> None:
    stack = changed(without(jetson(), "reservation.carrier"), "cluster.kubernetes_version", version)
    settings = parse(changed(stack, "admission.image", "registry.example.com/agents:1"))
    assert settings.cluster.policies_version == policies
    expected = (("reservation",), ()) if policies else ((), (Webhook.RESERVATION,))
    assert (settings.policy_carriers, settings.webhooks) == expected


@pytest.mark.parametrize("version", ["1.36", "v1.36", "1.37", "2.0"])
def test_the_policy_carrier_is_accepted_from_1_36_on(version: str) -> None:
    assert parse(changed(jetson(), "cluster.kubernetes_version", version)).overrides_apply


def test_a_stack_that_does_not_state_its_version_is_left_to_preflight() -> None:
    assert parse(without(jetson(), "cluster.kubernetes_version")).overrides_apply


@pytest.mark.parametrize("stack", [never(), x86()])
def test_a_stack_without_overrides_runs_on_an_older_cluster(stack: dict[str, object]) -> None:
    assert not parse(changed(stack, "cluster.kubernetes_version", "1.35")).overrides_apply


def test_overrides_always_in_an_x86_stack_say_what_would_happen() -> None:
    assert_refused(
        changed(x86(), "reservation.overrides", "always"),
        "",
        "reservation.overrides 'always' in an x86 stack",
        "found N devices, 1 was expected",
        "Use auto or never",
    )


@pytest.mark.parametrize(
    ("name", "overrides", "apply"),
    [
        ("jetson", "auto", True),
        ("jetson", "always", True),
        ("jetson", "never", False),
        ("x86", "auto", False),
        ("x86", "never", False),
    ],
)
def test_overrides_apply_to_tegra_unless_they_are_turned_off(name: str, overrides: str, *, apply: bool) -> None:
    assert parse(changed(STACKS[name](), "reservation.overrides", overrides)).overrides_apply is apply


@pytest.mark.parametrize(
    ("key", "value"), [("privilege", "none"), ("privilege_by_node", {}), ("supplemental_groups", [44])]
)
def test_an_x86_stack_says_nothing_of_privilege(key: str, value: object) -> None:
    assert_refused(
        changed(x86(), f"reservation.{key}", value),
        "",
        f"reservation.{key} in an x86 stack",
        f"Remove reservation.{key}",
    )


def test_the_privilege_of_a_node_that_is_not_listed_names_those_that_are() -> None:
    assert_refused(
        changed(mixed(), "reservation.privilege_by_node", {"jetson-9": "none"}),
        "",
        "reservation.privilege_by_node has 'jetson-9'",
        "There are: jetson-1, jetson-2.",
    )


@pytest.mark.parametrize("path", ["reservation.privilege", "reservation.privilege_by_node.jetson-1"])
def test_an_unknown_rung_names_the_known_ones(path: str) -> None:
    assert_refused(changed(jetson(), path, "root"), path, "'privileged', 'devices' or 'none'", found="root")


def test_groups_are_for_pods_that_are_not_root() -> None:
    assert_refused(
        changed(jetson(), "reservation.supplemental_groups", [44]),
        "",
        "every Jetson's reservation pod is privileged",
        "set reservation.privilege to devices or none",
    )
    parse(changed(unprivileged(), "reservation.privilege_by_node", {"jetson-1": "devices"}))


@pytest.mark.parametrize("group", [0, -1, 2**31])
def test_no_group_is_roots(group: int) -> None:
    stack = changed(unprivileged(), "reservation.supplemental_groups", [group])
    assert_refused(stack, "reservation.supplemental_groups.0", "Input should be", found=group)


def test_a_node_may_be_on_another_rung_than_its_stack() -> None:
    assert parse(rungs()).privileges == {"jetson-1": "none", "jetson-2": "devices", "jetson-3": "privileged"}
    assert parse(jetson()).privileges == {"jetson-1": "privileged"}
    assert parse(changed(rungs(), "reservation.overrides", "never")).privileges == {}
    assert parse(x86()).privileges == {}


def test_a_node_may_say_its_own_library_folders_and_all_others_have_the_platforms() -> None:
    folders = ["/usr/lib/aarch64-linux-gnu/nvidia", "/opt/nvidia/l4t-gpu-libs/openrm"]
    platform = parse(
        changed(mixed(), "platform.tegra_nodes.jetson-2.driver_library_paths", folders)
    ).overridden_platform
    assert platform is not None
    assert platform.library_folders("jetson-1") == ("/usr/lib/aarch64-linux-gnu/nvidia",)
    assert platform.library_folders("jetson-2") == tuple(folders)


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        ([], "at least 1 item"),
        ([f"/opt/{number}" for number in range(9)], "at most 8 items"),
        (["/opt/a", "/opt/a"], "'/opt/a' is listed twice: remove one"),
        (["opt/a"], "not a host path"),
        (["/opt/../etc"], "not a host path"),
        (["/opt/a\nb"], "control characters"),
        (["/opt/a:/opt/b"], "':' separates folders in LD_LIBRARY_PATH"),
        ("/opt/a", "must be a list"),
    ],
)
def test_library_folders_are_a_short_list_of_host_paths(folders: object, says: str) -> None:
    key = "platform.tegra_nodes.jetson-1.driver_library_paths"
    text = refusal(changed(jetson(), key, folders))
    assert key in text
    assert says in text


def test_device_files_lie_where_a_pod_can_mount_them() -> None:
    key = "platform.device_path"
    assert_refused(changed(jetson(), key, "/dev:1"), key, "its mounts take no ':'", found="/dev:1")
