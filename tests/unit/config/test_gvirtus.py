"""What a stack may say of remote GPUs."""

import pytest

from config.gvirtus import BackendKind
from config.reservation import Carrier
from testbed.stacks import (
    Json,
    assert_refused,
    changed,
    gvirtus,
    gvirtus_full,
    gvirtus_webhook,
    jetson,
    parse,
    without,
    x86,
)

_DIGEST = "@sha256:" + "a" * 64


def test_without_the_section_there_is_nothing() -> None:
    assert parse(jetson()).gvirtus is None


def test_a_section_with_one_backend_needs_no_more() -> None:
    parsed = parse(changed(x86(), "gvirtus", {"backends": {"a": {"image": "gvirtus/gvirtus:1"}}})).gvirtus
    assert parsed is not None
    assert (parsed.namespace, parsed.carrier, parsed.frontends) == ("gvirtus-system", Carrier.AUTO, None)
    backend = parsed.backends["a"]
    assert (backend.kind, backend.gpu_resource, backend.port) == (BackendKind.GVIRTUS, "nvidia.com/gpu", None)
    assert parsed.default == "a", "one backend alone is the default"


def test_of_several_backends_none_is_the_default_unless_the_stack_says_so() -> None:
    several = parse(without(gvirtus(), "gvirtus.default_backend")).gvirtus
    assert several is not None
    assert several.default is None
    chosen = parse(gvirtus()).gvirtus
    assert chosen is not None
    assert chosen.default == "gpu-a"


def test_no_backend_is_no_section() -> None:
    assert_refused(changed(gvirtus(), "gvirtus.backends", {}), "gvirtus.backends", "at least 1 item")


@pytest.mark.parametrize("image", ["gvirtus/gvirtus", "gvirtus/gvirtus:latest", "host:5000/gvirtus", "a b:1", ":1", ""])
def test_an_image_that_does_not_say_which_one_it_is_is_refused(image: str) -> None:
    path = "gvirtus.backends.gpu-a.image"
    assert_refused(changed(gvirtus(), path, image), path, "with a tag other than latest", found=image)


@pytest.mark.parametrize("image", ["Alpine:3", "a..b:1", "site/a-:1", "site.example.com/a___b:1", "site./a:1"])
def test_an_image_that_no_container_runtime_could_pull_is_refused(image: str) -> None:
    path = "gvirtus.backends.gpu-a.image"
    assert_refused(changed(gvirtus(), path, image), path, "write registry/name:tag", found=image)


@pytest.mark.parametrize(
    "image",
    ["a:1", "Site.example.com/a__b-c.d:1", f"a{_DIGEST}", f"host:5000/b/a:latest{_DIGEST}", "host:5000/b/a:1.2-x_y"],
)
def test_an_image_with_a_tag_or_a_digest_is_welcome(image: str) -> None:
    assert parse(changed(gvirtus(), "gvirtus.backends.gpu-a.image", image)).gvirtus is not None


@pytest.mark.parametrize("image", ["squat/generic-device-plugin:0.2.0", "a@sha256:1234", f"a{_DIGEST}0"])
def test_the_device_plugin_is_named_by_digest(image: str) -> None:
    path = "gvirtus.frontends.device_plugin_image"
    assert_refused(changed(gvirtus(), path, image), path, "not an image with a digest", found=image)


@pytest.mark.parametrize("name", ["1a", "A", "a_b", "-a", "a-", "a" * 51, "a.b"])
def test_a_backends_name_is_a_services_name(name: str) -> None:
    stack = gvirtus()
    stack["gvirtus"]["backends"][name] = {"image": "a:1", "node": "x86-1"}
    assert_refused(stack, f"gvirtus.backends.{name}", "not a backend's name", "begin with a letter", found=name)


def test_an_unknown_default_names_the_backends() -> None:
    stack = changed(gvirtus(), "gvirtus.default_backend", "gpu-z")
    assert_refused(stack, "gvirtus", "default_backend 'gpu-z' is none of the backends: gpu-a, gpu-b")


def test_a_backend_has_one_place() -> None:
    stack = changed(gvirtus(), "gvirtus.backends.gpu-a.node_selector", {"a": "b"})
    assert_refused(stack, "gvirtus", "backend 'gpu-a' has node and node_selector. Keep one")


def test_a_backend_without_a_place_needs_detection() -> None:
    assert parse(without(gvirtus(), "gvirtus.backends.gpu-a.node")).gvirtus is not None
    stack = without(gvirtus_full(), "gvirtus.backends.only.node_selector")
    assert_refused(stack, "", "gvirtus.backends.only has no node and no node_selector", "Set one of them")


def test_a_backend_can_not_be_on_a_frontend() -> None:
    stack = changed(gvirtus(), "gvirtus.backends.gpu-a.node", "cpu-1")
    assert_refused(stack, "gvirtus", "node 'cpu-1' is the node of backend 'gpu-a' and a frontend")


def test_a_frontend_stands_once() -> None:
    path = "gvirtus.frontends.nodes"
    assert_refused(changed(gvirtus(), path, ["cpu-1", "cpu-1"]), path, "node 'cpu-1' stands here twice")


@pytest.mark.parametrize(
    ("stack", "where"),
    [
        (changed(gvirtus(), "gvirtus.frontends.nodes", ["jetson-1"]), "platform.tegra_nodes"),
        (
            changed(
                changed(gvirtus(), "platform.unified_memory_nodes", {"spark-1": {"gpu_memory_mib": 114688}}),
                "gvirtus.frontends.nodes",
                ["spark-1"],
            ),
            "platform.unified_memory_nodes",
        ),
        (
            changed(gvirtus(), "node_profiles", {"f": {"sharing": "kai", "nodes": ["cpu-1"]}}),
            "node_profiles.f",
        ),
    ],
)
def test_a_frontend_has_no_gpu(stack: Json, where: str) -> None:
    assert_refused(stack, "", f"which is listed under {where} and so has a GPU", "Remove one entry")


@pytest.mark.parametrize(
    "namespace", ["kai-scheduler", "gpu-operator", "kai-resource-reservation", "gvirtus-frontends"]
)
def test_backends_have_a_namespace_of_their_own(namespace: str) -> None:
    stack = changed(gvirtus(), "gvirtus.namespace", namespace)
    assert_refused(stack, "", f"gvirtus.namespace '{namespace}' is the namespace of", "Choose one of its own")


def test_the_policy_carrier_needs_kubernetes_1_36() -> None:
    stack = changed(x86(), "gvirtus", {"backends": {"a": {"image": "a:1"}}})
    assert parse(changed(stack, "cluster.kubernetes_version", "1.36")).gvirtus is not None
    stack = changed(stack, "gvirtus.carrier", "policy")
    old = changed(stack, "cluster.kubernetes_version", "1.35")
    ways_out = ("Upgrade the cluster", "use gvirtus.carrier: webhook", "remove the section gvirtus", "v1beta1")
    assert_refused(old, "", "gvirtus.carrier 'policy' needs Kubernetes 1.36", "is 1.35", *ways_out)


@pytest.mark.parametrize("version", ["1.30", "1.35", "1.36"])
def test_the_webhook_carrier_needs_no_newer_cluster(version: str) -> None:
    parsed = parse(changed(gvirtus_webhook(), "cluster.kubernetes_version", version)).gvirtus
    assert parsed is not None
    assert parsed.carrier is Carrier.WEBHOOK


def test_an_unknown_carrier_is_refused_with_those_there_are() -> None:
    stack = changed(gvirtus(), "gvirtus.carrier", "sidecar")
    assert_refused(stack, "gvirtus.carrier", "'policy' or 'webhook'", found="sidecar")


def test_backends_and_the_admission_server_have_a_namespace_each() -> None:
    stack = changed(gvirtus_webhook(), "admission.namespace", "gvirtus-system")
    assert_refused(stack, "", "gvirtus.namespace 'gvirtus-system' is the namespace of the admission server")
    unused = changed(gvirtus(), "admission.namespace", "gvirtus-system")
    assert not parse(unused).webhooks, "without a webhook there is no server, and no namespace of it"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("kind", "rcuda", "'gvirtus' or 'lupine'"),
        ("port", 0, "greater than or equal to 1"),
        ("port", 65536, "less than or equal to 65535"),
        ("port", "9999", "valid integer"),
        ("run_as_user", 0, "greater than or equal to 1"),
        ("cpu", "half", "not a Kubernetes quantity"),
        ("memory", "2 GB", "not a Kubernetes quantity"),
        *[("memory", odd, "such as '500Mi' or '2Gi'") for odd in ("500m", "0", "0Gi", "2048")],
        *[
            ("memory", given, f"Write '{meant}' if that is what you meant.")
            for given, meant in (("128 GB", "128G"), ("2gib", "2Gi"), ("500m", "500M"), ("2048", "2048Mi"), (8, "8Mi"))
        ],
        ("cpu", "2Gi", "such as '500m' or '2'"),
        ("gpu_resource", "amd.com/gpu", "match pattern"),
        ("gpu_resource", "nvidia.com/mig-1g.", "match pattern"),
        ("node", "Node_1", "not a Kubernetes object name"),
    ],
)
def test_a_wrong_value_of_a_backend_is_named(key: str, value: object, says: str) -> None:
    path = f"gvirtus.backends.gpu-a.{key}"
    assert_refused(changed(gvirtus(), path, value), path, says, found=value)


@pytest.mark.parametrize("labels", [{"a b": "c"}, {"a": "b c"}, {"/a": "b"}, {"a": "b" * 64}])
@pytest.mark.parametrize("path", ["gvirtus.client_namespace_labels", "gvirtus.backends.gpu-b.node_selector"])
def test_what_is_no_label_is_refused(path: str, labels: dict[str, str]) -> None:
    assert_refused(changed(gvirtus(), path, labels), path, "is not a label")
