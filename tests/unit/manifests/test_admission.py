"""What the admission server is installed with; that it works is proven on a real API server, in tests/engine."""

import json
from pathlib import Path

import msgspec
import pytest

from agents.admission import __main__ as agent
from agents.admission import settings as agent_settings
from agents.admission.endpoints import EndpointsFile
from agents.admission.mutation import Mutation
from agents.admission.settings import MountedCertificate, OwnCertificate, Settings, SignedCertificate
from config.gvirtus import BackendKind
from config.reservation import Privilege
from manifests import admission, reservation, reservation_index
from manifests.gvirtus import backends as remote_gpus
from manifests.gvirtus import policy as gvirtus_policy
from manifests.gvirtus.injection import NOT_YET
from manifests.mutations import VERSION
from manifests.objects import manifests
from testbed.stacks import (
    ROOT,
    STACKS,
    WEBHOOK_STACKS,
    cert_manager,
    changed,
    gvirtus_webhook,
    jetson,
    parse,
    stack_certificates,
    webhook,
)


@pytest.mark.parametrize("name", [name for name in STACKS if name not in WEBHOOK_STACKS])
def test_other_stacks_have_none_of_it(name: str) -> None:
    assert admission.objects(parse(STACKS[name]())) == {}


@pytest.mark.parametrize("kind", BackendKind)
def test_the_webhook_of_remote_gpus_reaches_exactly_what_the_policies_reach(kind: BackendKind) -> None:
    # Where a cluster could have either carrier.
    settings = parse(changed(gvirtus_webhook(), "cluster.kubernetes_version", "1.36"))
    assert settings.gvirtus is not None
    [hook] = admission.gvirtus_webhook(settings)["webhooks"]
    for policy in (
        gvirtus_policy.injection_policy(settings, settings.gvirtus, kind),
        gvirtus_policy.requests_policy(settings, settings.gvirtus),
    ):
        constraints = policy["spec"]["matchConstraints"]
        assert hook["namespaceSelector"] == constraints["namespaceSelector"]
        assert hook["objectSelector"] == constraints["objectSelector"]
        assert hook["rules"] == [constraints["resourceRules"][0] | {"scope": "Namespaced"}]
        assert hook["failurePolicy"] == policy["spec"]["failurePolicy"] == "Fail"
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert "matchConditions" not in hook, "the requests policy has none either: every labelled pod is judged"


def test_backends_and_the_operators_are_outside_its_scope() -> None:
    settings = parse(gvirtus_webhook())
    [hook] = admission.gvirtus_webhook(settings)["webhooks"]
    [expression] = hook["namespaceSelector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert expression["values"] == [
        "gpu-operator",
        "gvirtus-system",
        "kai-anywhere",
        "kai-resource-reservation",
        "kai-scheduler",
        "kube-system",
    ]


def test_the_server_reads_the_backends_that_it_is_given(tmp_path: Path) -> None:
    settings = parse(gvirtus_webhook())
    assert settings.gvirtus is not None
    endpoints = remote_gpus.endpoints(settings.gvirtus, {"gpu-a": "10.96.7.7", "gpu-b": "10.96.7.8"})
    [(file, text)] = admission.gvirtus_backends_data(endpoints).items()
    assert [file] == [
        f"{name}-endpoints.json" for name, mutation in admission.mutations(settings).items() if mutation.choice
    ]
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert EndpointsFile(tmp_path / file).current() == {
        "gpu-a": "10.96.7.7:9999",
        "gpu-b": "10.96.7.8:14833",
    }


def test_the_backends_are_mounted_where_the_server_looks_and_need_not_be_there() -> None:
    settings = parse(gvirtus_webhook())
    manifest = admission.gvirtus_backends(settings)
    spec = manifests(admission.objects(settings))["deployment"]["spec"]["template"]["spec"]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "settings"]
    source = {"name": manifest["metadata"]["name"], "optional": True}
    assert {"configMap": source} in volume["projected"]["sources"]
    assert manifest["metadata"]["namespace"] == settings.admission.namespace
    [mount] = [
        volume_mount for volume_mount in spec["containers"][0]["volumeMounts"] if volume_mount["name"] == "settings"
    ]
    assert mount["mountPath"] == str(agent.DEFAULT_FOLDER)
    assert "subPath" not in mount, "the kubelet never refreshes one"


def test_remote_gpus_alone_bring_one_webhook_and_rights_to_it_alone() -> None:
    settings = parse(changed(gvirtus_webhook(), "reservation.overrides", "never"))
    made = manifests(admission.objects(settings))
    assert [key for key in made if key.endswith("-webhook")] == ["gvirtus-webhook"]
    [names] = [rule["resourceNames"] for rule in made["cluster-role"]["rules"] if "resourceNames" in rule]
    assert names == ["kai-anywhere-gvirtus"]
    assert admission.server_settings(settings)["mutations"].keys() == {"gvirtus"}
    assert admission.server_settings(settings)["webhook_configurations"] == ["kai-anywhere-gvirtus"]


def test_other_backends_make_no_other_pods_of_the_server() -> None:
    changed_backend = changed(gvirtus_webhook(), "gvirtus.backends.gpu-a.port", 34567)
    before, after = (manifests(admission.objects(parse(stack))) for stack in (gvirtus_webhook(), changed_backend))
    assert before == after


def test_nodes_with_several_gpus_alone_bring_the_server_no_updates() -> None:
    settings = parse(changed(webhook(), "platform.tegra_nodes.jetson-1.gpu_count", 2))
    [hook] = admission.reservation_webhook(settings)["webhooks"]
    assert [rule["operations"] for rule in hook["rules"]] == [["CREATE"]]
    assert [match_condition["name"] for match_condition in hook["matchConditions"]] == ["the-pod-has-a-node"]
    assert "rewrite" not in admission.server_settings(settings)["mutations"]["reservation"]


def test_the_webhook_reaches_exactly_what_the_policy_reaches() -> None:
    [hook] = admission.reservation_webhook(parse(webhook()))["webhooks"]
    settings = parse(jetson())
    policy = reservation.overrides_policy(settings, Privilege.PRIVILEGED)
    constraints = policy["spec"]["matchConstraints"]
    assert hook["namespaceSelector"] == constraints["namespaceSelector"]
    assert hook["objectSelector"] == constraints["objectSelector"]
    index = reservation_index.objects(settings)["index-policy"].manifest["spec"]["matchConstraints"]
    assert {key: index[key] for key in ("namespaceSelector", "objectSelector")} == {
        key: constraints[key] for key in ("namespaceSelector", "objectSelector")
    }
    assert hook["rules"] == [rule["resourceRules"][0] | {"scope": "Namespaced"} for rule in (constraints, index)]
    assert (hook["failurePolicy"], hook["reinvocationPolicy"]) == ("Fail", policy["spec"]["reinvocationPolicy"])
    assert hook["sideEffects"] == "None", "or a dry-run would be refused"
    assert "caBundle" not in hook["clientConfig"], "the server owns it"


@pytest.mark.parametrize("stack", [webhook(), cert_manager(), stack_certificates(), gvirtus_webhook()])
def test_the_server_reads_the_settings_that_it_is_given(stack: dict[str, object], tmp_path: Path) -> None:
    settings = parse(stack)
    [(name, text)] = manifests(admission.objects(settings))["settings"]["data"].items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    read = Settings.from_file(tmp_path / "settings.json")
    assert isinstance(read.certificate, OwnCertificate | MountedCertificate | SignedCertificate)
    assert read.dns_name == f"kai-anywhere-admission.{settings.admission.namespace}.svc"
    assert list(read.webhook_configurations) == [f"kai-anywhere-{name}" for name in settings.webhooks]
    assert list(read.mutations) == list(settings.webhooks)
    documents = {name: mutation.document() for name, mutation in admission.mutations(settings).items()}
    assert msgspec.convert(documents, dict[str, Mutation]) == read.mutations
    assert [read.mutations[name].fragments.keys() for name in documents] == [
        documents[name]["fragments"].keys() for name in documents
    ]


def test_program_and_server_agree_on_the_version_that_stands_in_the_settings_name() -> None:
    assert agent_settings.VERSION == VERSION
    made = manifests(admission.objects(parse(gvirtus_webhook())))
    name = made["settings"]["metadata"]["name"]
    assert name == f"kai-anywhere-admission-v{VERSION}"
    [volume] = [
        volume for volume in made["deployment"]["spec"]["template"]["spec"]["volumes"] if volume["name"] == "settings"
    ]
    assert volume["projected"]["sources"][0] == {"configMap": {"name": name}}


def test_the_server_has_no_word_of_what_it_adds() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "agents/admission").rglob("*.py")).lower()
    assert "mutation" in code
    for word in ("gvirtus", "lupine", "tegra", "nvidia", "kai-resource-reservation", "gpu-fraction"):
        assert word not in code
    assert admission.GVIRTUS_BACKENDS in NOT_YET


def test_rights_are_by_name() -> None:
    made = manifests(admission.objects(parse(webhook())))
    rules = made["cluster-role"]["rules"] + made["role"]["rules"]
    assert [rule for rule in rules if "resourceNames" not in rule] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    assert "*" not in json.dumps(rules)
    assert not {"create", "delete", "deletecollection"} & {verb for rule in rules for verb in rule["verbs"]}


def test_with_cert_manager_the_server_writes_nothing() -> None:
    made = manifests(admission.objects(parse(cert_manager())))
    assert "secret" not in made
    assert "role" not in made
    assert {verb for rule in made["cluster-role"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    annotations = made["reservation-webhook"]["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": "gpu-admission/kai-anywhere-admission"}
    certificate = made["certificate"]
    assert (certificate["metadata"]["namespace"], certificate["metadata"]["name"]) == ("gpu-admission", admission.NAME)
    [volume] = [volume for volume in made["deployment"]["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
    assert volume["secret"] == {"secretName": certificate["spec"]["secretName"]}


def test_with_an_authority_of_the_stack_the_server_has_no_right_but_to_see_nodes() -> None:
    made = manifests(admission.objects(parse(stack_certificates())))
    assert not {"secret", "role", "role-binding"} & made.keys()
    assert made["cluster-role"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    secrets = [manifest["metadata"]["name"] for key, manifest in made.items() if key.startswith("authority-")]
    assert secrets == ["kai-anywhere-admission-a", "kai-anywhere-admission-b"]
    spec = made["deployment"]["spec"]["template"]["spec"]
    [volume] = [volume for volume in spec["volumes"] if "secret" in volume]
    assert volume["secret"] == {"secretName": "kai-anywhere-admission-a"}, "the first one signs"
    [mount] = [
        volume_mount for volume_mount in spec["containers"][0]["volumeMounts"] if volume_mount["name"] == volume["name"]
    ]
    assert admission.server_settings(parse(stack_certificates()))["certificate"]["folder"] == mount["mountPath"]


def test_for_remote_gpus_alone_the_server_sees_no_nodes() -> None:
    alone = changed(gvirtus_webhook(), "reservation.overrides", "never")
    made = manifests(admission.objects(parse(alone)))
    assert '"nodes"' not in json.dumps(made["cluster-role"])
    assert '"nodes"' in json.dumps(manifests(admission.objects(parse(gvirtus_webhook())))["cluster-role"])


def test_a_server_without_any_right_has_no_role() -> None:
    alone = changed(gvirtus_webhook(), "reservation.overrides", "never")
    alone = changed(alone, "admission.certificates", {"kind": "stack", "authorities": ["a"]})
    made = manifests(admission.objects(parse(alone)))
    assert not [key for key in made if "role" in key]
    assert {"service-account", "authority-a", "deployment", "gvirtus-webhook"} <= made.keys()


def test_other_settings_make_other_pods() -> None:
    def annotation(stack: dict[str, object]) -> str:
        deployment = manifests(admission.objects(parse(stack)))["deployment"]
        value: str = deployment["spec"]["template"]["metadata"]["annotations"]["kai-anywhere.io/settings"]
        return value

    assert annotation(webhook()) == annotation(webhook())
    assert annotation(webhook()) != annotation(cert_manager())


def test_its_pods_are_not_in_its_own_scope() -> None:
    settings = parse(webhook())
    template = manifests(admission.objects(settings))["deployment"]["spec"]["template"]
    assert "app" not in template["metadata"]["labels"]
    [hook] = admission.gvirtus_webhook(settings)["webhooks"]
    [expression] = hook["namespaceSelector"]["matchExpressions"]
    assert {"kube-system", settings.admission.namespace, settings.kai.namespace} <= set(expression["values"])
