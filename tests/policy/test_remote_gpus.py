"""The frontends' device plugin may mount the kubelet's folder of sockets, and nothing more, and nobody else may."""

import json

import pytest

from policy.stack_platform import STACK_CONFIG, StackFacts, stack_facts
from testbed.stacks import gvirtus, gvirtus_webhook, jetson
from tests.policy.objects import STRICT, Json, changed, findings, without
from tests.unit.components.programs import preview

DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
NAMESPACE = "kubernetes:core/v1:Namespace"
WEBHOOK = "kubernetes:admissionregistration.k8s.io/v1:MutatingWebhookConfiguration"
FRONTENDS = stack_facts(json.dumps(gvirtus()), {})
FOLDER = "spec.template.spec.volumes.0.hostPath"


def _plugin() -> Json:
    return dict(preview(gvirtus()).by_key["DaemonSet:gvirtus-device-plugin"].inputs)


def _rules(token: str, props: Json, stack: StackFacts = FRONTENDS) -> set[str]:
    return {finding.rule for finding in findings(token, props, stack)}


def test_the_device_plugin_passes_where_the_stack_has_frontends() -> None:
    assert FRONTENDS.remote_gpu_frontends
    assert _rules(DAEMON_SET, _plugin()) == set()


@pytest.mark.parametrize("stack", [STRICT, stack_facts(json.dumps(jetson()), {})], ids=["no-settings", "jetson"])
def test_it_is_no_exception_where_the_stack_has_none(stack: StackFacts) -> None:
    assert _rules(DAEMON_SET, _plugin(), stack) == {"host-paths"}
    [namespace] = [r.inputs for r in preview(gvirtus()).registrations if r.key.endswith("frontends-namespace")]
    assert _rules(NAMESPACE, dict(namespace), stack) == {"namespaces"}


def test_the_packs_own_configuration_tells_of_frontends_too() -> None:
    assert stack_facts(None, {"gvirtus": gvirtus()["gvirtus"]}).remote_gpu_frontends
    assert not stack_facts(None, {"gvirtus": {"backends": {}}}).remote_gpu_frontends
    assert STACK_CONFIG == "kai-anywhere"


@pytest.mark.parametrize(
    "folder",
    ["/", "/var/lib/kubelet", "/var/lib/kubelet/pods", "/dev", "/var/lib/kubelet/device-plugins/..", "/run"],
)
def test_no_other_folder_of_the_node_is_accepted(folder: str) -> None:
    assert _rules(DAEMON_SET, changed(_plugin(), f"{FOLDER}.path", folder)) == {"host-paths"}


def test_no_second_folder_is_accepted() -> None:
    plugin = _plugin()
    volumes = plugin["spec"]["template"]["spec"]["volumes"]
    other = {"name": "other", "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"}}
    assert _rules(DAEMON_SET, changed(plugin, "spec.template.spec.volumes", [*volumes, other])) == {"host-paths"}


def test_a_folder_that_would_be_made_is_not_accepted() -> None:
    assert _rules(DAEMON_SET, changed(_plugin(), f"{FOLDER}.type", "DirectoryOrCreate")) == {"host-paths"}
    assert _rules(DAEMON_SET, without(_plugin(), f"{FOLDER}.type")) == {"host-paths"}


@pytest.mark.parametrize("name", ["other", "gvirtus-device-plugin2"])
def test_nobody_else_is_an_exception(name: str) -> None:
    assert _rules(DAEMON_SET, changed(_plugin(), "metadata.name", name)) == {"host-paths"}
    assert _rules("kubernetes:apps/v1:Deployment", _plugin()) == {"host-paths"}


def test_the_device_plugin_may_not_be_privileged() -> None:
    container = "spec.template.spec.containers.0.securityContext.privileged"
    assert _rules(DAEMON_SET, changed(_plugin(), container, True)) == {"privileged"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("failurePolicy", "Ignore"),
        ("timeoutSeconds", 30),
        ("namespaceSelector", {}),
        ("objectSelector", {}),
        ("clientConfig.url", "https://elsewhere.example.com/mutate"),
    ],
)
def test_the_webhook_of_remote_gpus_is_held_to_the_bounds_of_ours(field: str, value: object) -> None:
    key = "MutatingWebhookConfiguration:admission-gvirtus-webhook"
    webhook = dict(preview(gvirtus_webhook()).by_key[key].inputs)
    assert _rules(WEBHOOK, webhook) == set()
    assert _rules(WEBHOOK, changed(webhook, f"webhooks.0.{field}", value)) == {"admission"}
