"""Rules of `cluster`."""

import pytest

from config.cluster import Distribution, minor_version
from manifests.tolerations import tolerations
from testbed.stacks import assert_refused, changed, jetson, parse, without, x86


def test_an_unknown_distribution_names_the_known_ones() -> None:
    names = [repr(distribution.value) for distribution in Distribution]
    assert_refused(changed(x86(), "cluster.distribution", "eks"), "cluster.distribution", *names, " or ", found="eks")


def test_the_distribution_is_required() -> None:
    assert_refused(without(x86(), "cluster.distribution"), "cluster.distribution", "required, but missing")


@pytest.mark.parametrize("distribution", [distribution.value for distribution in Distribution])
def test_every_distribution_is_accepted(distribution: str) -> None:
    assert parse(changed(x86(), "cluster.distribution", distribution)).cluster.distribution == distribution


def test_a_version_without_quotes_is_a_number_and_refused() -> None:
    key = "cluster.kubernetes_version"
    assert_refused(changed(x86(), key, 1.36), key, "put it in quotes", found=1.36)


@pytest.mark.parametrize("value", ["1", "1.36.2", "latest", "1.36+", "", "1.9999"])
def test_a_version_has_major_and_minor_alone(value: str) -> None:
    key = "cluster.kubernetes_version"
    assert_refused(changed(x86(), key, value), key, "write major and minor in quotes, such as '1.36'", found=value)


@pytest.mark.parametrize("value", ["1.29", "1.3", "v1.9"])
def test_a_version_before_the_guards_is_refused_without_a_cluster(value: str) -> None:
    key = "cluster.kubernetes_version"
    assert_refused(changed(x86(), key, value), key, "older than 1.30", "'1.30' in quotes", found=value)
    parse(changed(x86(), key, "1.30"))


@pytest.mark.parametrize(("text", "version"), [("1.36", (1, 36)), ("v1.36", (1, 36)), ("1.9", (1, 9))])
def test_a_version_is_read_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert minor_version(text) == version


def test_a_text_that_is_no_version_says_so() -> None:
    with pytest.raises(ValueError, match="'new' is not a Kubernetes version"):
        minor_version("new")


def test_the_containerd_base_directory_is_an_option_of_k8s_snap() -> None:
    assert_refused(
        changed(jetson(), "cluster.containerd_base_dir", "/var/lib/other"),
        "cluster",
        "containerd_base_dir is an option of k8s-snap; distribution is 'k3s'. Remove it.",
    )


@pytest.mark.parametrize("path", ["relative", "/", "/a/../b", "/a//b", "/a/", "/./a", ""])
def test_a_host_path_is_absolute_and_plain(path: str) -> None:
    key = "platform.driver_library_path"
    assert_refused(changed(jetson(), key, path), key, "write it absolute", found=path)


@pytest.mark.parametrize("key", ["cluster.kubeconfig", "cluster.context"])
def test_an_empty_name_is_no_way_to_say_default(key: str) -> None:
    assert_refused(changed(x86(), key, ""), key, "at least 1 character", found="")


@pytest.mark.parametrize("namespace", ["kube-system", "default", "kai-resource-reservation"])
@pytest.mark.parametrize("section", ["kai", "gpu_operator"])
def test_no_part_is_put_into_a_namespace_of_somebody_else(section: str, namespace: str) -> None:
    stack = changed(jetson(), f"{section}.namespace", namespace)
    assert_refused(stack, "", f"{section}.namespace '{namespace}' is the namespace of", "Choose one of its own")


def test_kai_and_the_operator_have_a_namespace_each_whoever_installs_the_operator() -> None:
    stack = changed(jetson(), "kai.namespace", "gpu-operator")
    assert_refused(stack, "", "gpu_operator.namespace 'gpu-operator' is the namespace of KAI")
    assert_refused(
        changed(stack, "gpu_operator.install", False), "", "kai.namespace 'gpu-operator' is the namespace of the GPU"
    )


@pytest.mark.parametrize("name", ["Queue/default-queue", "Node/jetson-1.example.com", "ConfigMap/gpu-operator/a"])
def test_an_object_to_adopt_is_named_by_kind_and_name(name: str) -> None:
    assert parse(changed(jetson(), "cluster.adopt", [name])).cluster.adopt == (name,)


@pytest.mark.parametrize("name", ["default-queue", "queue/default-queue", "Queue/", "Queue/a/b/c", "Queue/*", ""])
def test_anything_else_to_adopt_is_refused_with_an_example(name: str) -> None:
    stack = changed(jetson(), "cluster.adopt", [name])
    assert_refused(stack, "cluster.adopt.0", "write Kind/name, such as Queue/default-queue", found=name)


def test_a_tolerated_taint_is_written_as_kubectl_writes_it() -> None:
    said = ["dedicated=gpus:NoSchedule", "example.com/site=:NoExecute", "example.com/pool:PreferNoSchedule"]
    assert tolerations(parse(changed(x86(), "cluster.tolerated_taints", said)).cluster) == [
        {"key": "dedicated", "operator": "Equal", "value": "gpus", "effect": "NoSchedule"},
        {"key": "example.com/site", "operator": "Equal", "value": "", "effect": "NoExecute"},
        {"key": "example.com/pool", "operator": "Exists", "effect": "PreferNoSchedule"},
    ]


@pytest.mark.parametrize(
    "taint", ["", "a", "a=b", ":NoSchedule", "=b:NoSchedule", "a:noschedule", "a=b c:NoExecute", "a b:NoExecute"]
)
def test_what_is_no_taint_is_refused(taint: str) -> None:
    stack = changed(x86(), "cluster.tolerated_taints", [taint])
    assert_refused(stack, "cluster.tolerated_taints.0", "write it as kubectl does, key=value:effect", found=taint)
