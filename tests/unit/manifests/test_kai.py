"""KAI's release and queues."""

from typing import Any

import pytest

from config.kai import GpuSharingMode
from manifests import kai
from testbed.stacks import STACKS, Json, air_gapped, changed, jetson, parse, x86


def _values(stack: Json) -> Json:
    return dict(kai.release(parse(stack)).values)


@pytest.mark.parametrize("name", STACKS)
def test_every_stack_shares_gpus_under_the_runtime_class_nvidia(name: str) -> None:
    values = _values(STACKS[name]())
    assert values["global"]["gpuSharingMode"] in {"NonMemoryEnforced", "HamiCore"}
    assert values["binder"]["runtimeClassName"] == "nvidia"
    assert values["admission"]["gpuFractionRuntimeClassName"] == "nvidia"


_MODES = {
    "non_memory_enforced": "NonMemoryEnforced",
    "hami_core": "HamiCore",
    "nv_fractions": "NvFractions",
    "disabled": "Disabled",
}
_every_mode = pytest.mark.parametrize(("mode", "upstreams"), _MODES.items())


def _shared(mode: str, chart: Json) -> Json:
    """How GPUs are shared, among the values."""
    values = _values(changed(changed(x86(), "kai.gpu_sharing_mode", mode), "kai.chart", chart))
    said = {key: value for key, value in values["global"].items() if key.startswith("gpuSharing")}
    return said | ({"plugins": values["binder"]["plugins"]} if "plugins" in values["binder"] else {})


def test_every_mode_is_tested() -> None:
    assert _MODES.keys() == set(GpuSharingMode)


@_every_mode
@pytest.mark.parametrize("chart", [{}, {"version": "v0.18.0"}, {"version": "0.18.6"}, {"version": "v1.0.0-rc1"}])
def test_from_0_18_on_the_mode_alone_is_passed(mode: str, upstreams: str, chart: Json) -> None:
    assert _shared(mode, chart) == {"gpuSharingMode": upstreams}


@pytest.mark.parametrize("version", ["v0.17.0", "0.17.1"])
def test_0_17_gets_what_it_knows(version: str) -> None:
    chart = {"version": version}
    assert _shared("non_memory_enforced", chart) == {"gpuSharing": True}
    assert _shared("disabled", chart) == {"gpuSharing": False}
    assert _shared("hami_core", chart) == {"gpuSharing": True, "plugins": {"hamicore": {"enabled": True}}}


@_every_mode
@pytest.mark.parametrize("chart", [{"source": "./kai"}, {"version": "~0.18.0"}, {"version": "0.0.0-41a22cd"}])
def test_a_chart_of_unknown_version_gets_both_spellings_and_never_fractions_that_it_can_not_enforce(
    mode: str, upstreams: str, chart: Json
) -> None:
    shared = _shared(mode, chart)
    assert shared["gpuSharingMode"] == upstreams
    assert shared["gpuSharing"] is (mode in {"non_memory_enforced", "hami_core"})
    assert ("plugins" in shared) == (mode == "hami_core")


def test_the_reservation_namespace_is_ours_and_its_account_the_operators() -> None:
    assert _values(jetson())["global"]["resourceReservation"] == {
        "createNamespace": False,
        "createServiceAccount": False,
        "namespace": "kai-resource-reservation",
        "serviceAccount": "kai-resource-reservation",
        "appLabel": "kai-resource-reservation",
    }


def _images(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    queue_objects: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            if "pullPolicy" in value:
                queue_objects[f"{path}{key}"] = value
            queue_objects |= _images(value, f"{path}{key}.")
    return queue_objects


def test_the_pull_policy_reaches_every_image_hooks_included() -> None:
    images = _images(_values(changed(x86(), "kai.images.pull_policy", "Never")))
    assert {image["pullPolicy"] for image in images.values()} == {"Never"}
    assert {"crdupgrader.image", "kaiConfigDeployer.image", "postCleanup.image"} <= images.keys()
    assert len(images) == 15


def test_optional_values_are_absent_unless_a_stack_says_them() -> None:
    values = _values(x86())
    assert not {"registry", "tag", "imagePullSecrets"} & values["global"].keys()
    assert "args" not in values["scheduler"]
    assert "cdiEnabled" not in values["binder"]
    assert "tolerations" not in values["global"]


def test_everything_that_a_stack_says_reaches_the_chart() -> None:
    values = _values(air_gapped())
    assert values["global"]["registry"] == "registry.example.com:5000/kai"
    assert values["global"]["tag"] == "v0.18.6-site"
    assert values["global"]["imagePullSecrets"] == [{"name": "site"}, {"name": "team"}]
    assert values["scheduler"]["args"] == {"full-hierarchy-fairness": "true", "v": "4"}
    assert list(values["scheduler"]["args"]) == ["full-hierarchy-fairness", "v"], "sorted"
    assert values["scheduler"]["placementStrategy"] == "spread"
    assert values["binder"]["cdiEnabled"] is True
    assert values["global"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "gpus", "effect": "NoSchedule"}
    ]
    assert values["defaultQueue"] == {"createDefaultQueue": False}


def test_queues_come_after_their_parents_whatever_their_names() -> None:
    queues = {"a": {"parent": "b"}, "b": {"parent": "c"}, "c": {}, "d": {"parent": "default-parent-queue"}}
    built = list(kai.queues(parse(changed(x86(), "kai.queues", queues))))
    assert built == ["c", "b", "a", "default-parent-queue", "d", "default-queue"]


def test_the_usual_pair_is_ours_as_the_chart_would_make_it_and_never_the_charts() -> None:
    stack = changed(x86(), "kai.queues", {})
    built = kai.queues(parse(stack))
    share = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    resources = {"gpu": share, "cpu": share, "memory": share}
    assert {name: queue["spec"] for name, queue in built.items()} == {
        "default-parent-queue": {"displayName": "default-parent-queue", "resources": resources},
        "default-queue": {
            "displayName": "default-queue",
            "parentQueue": "default-parent-queue",
            "resources": resources,
        },
    }
    assert kai.queues(parse(changed(stack, "kai.default_queue", False))) == {}
    assert _values(stack)["defaultQueue"] == {"createDefaultQueue": False}


def test_the_default_shard_is_taken_over_without_a_word_about_its_spec() -> None:
    shard = kai.default_shard()
    assert (shard["kind"], shard["metadata"]["name"]) == ("SchedulingShard", "default")
    assert "spec" not in shard


def test_a_queue_carries_its_shares_and_nothing_that_was_not_said() -> None:
    queues = {"a": {"priority": 7, "gpu": {"quota": 1.5, "limit": 2, "over_quota_weight": 3}}, "b": {"parent": "a"}}
    built = kai.queues(parse(changed(x86(), "kai.queues", queues)))
    default = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    assert built["a"]["spec"] == {
        "displayName": "a",
        "priority": 7,
        "resources": {
            "gpu": {"quota": 1.5, "limit": 2, "overQuotaWeight": 3},
            "cpu": default,
            "memory": default,
        },
    }
    assert built["b"]["spec"].keys() == {"displayName", "parentQueue", "resources"}


def test_kais_namespace_takes_its_pods_where_the_cluster_is_restricted_by_default() -> None:
    labels = kai.kai_namespace(parse(x86()))["metadata"]["labels"]
    assert {name: level for name, level in labels.items() if name.startswith("pod-security")} == {
        "pod-security.kubernetes.io/enforce": "baseline"
    }
