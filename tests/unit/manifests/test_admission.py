"""What the admission server is installed with; that it works is proven on a real API server, in tests/engine."""

import json
from pathlib import Path

import pytest

from agents.admission import files, gvirtus, nodes
from agents.admission.reservation import Fragment
from agents.admission.settings import MountedCertificate, OwnCertificate, Settings
from manifests import admission, reservation
from manifests.node_labels import PLATFORM, PLATFORM_TEGRA
from tests.support.golden import Golden
from tests.support.stacks import STACKS, cert_manager, jetson, parse, webhook


@pytest.mark.parametrize("name", [name for name in STACKS if name not in {"webhook", "cert-manager"}])
def test_other_stacks_have_none_of_it(name: str) -> None:
    assert admission.objects(parse(STACKS[name]())) == {}


def test_the_gvirtus_webhook_is_the_reviewed_one(golden: Golden) -> None:
    golden.check("gvirtus-webhook", {"gvirtus-webhook": admission.gvirtus_webhook(parse(webhook()))})


def test_the_webhook_reaches_exactly_what_the_policy_reaches() -> None:
    [hook] = admission.reservation_webhook(parse(webhook()))["webhooks"]
    platform = parse(jetson()).platform
    policy = reservation.overrides_policy(reservation.tegra_fragment(platform))  # type: ignore[arg-type]  # Tegra
    constraints = policy["spec"]["matchConstraints"]
    assert hook["namespaceSelector"] == constraints["namespaceSelector"]
    assert hook["objectSelector"] == constraints["objectSelector"]
    assert hook["rules"] == [constraints["resourceRules"][0] | {"scope": "Namespaced"}]
    assert (hook["failurePolicy"], hook["reinvocationPolicy"]) == ("Fail", policy["spec"]["reinvocationPolicy"])
    assert hook["sideEffects"] == "None", "or a dry-run would be refused"
    assert "caBundle" not in hook["clientConfig"], "the server owns it"


@pytest.mark.parametrize("stack", [webhook(), cert_manager()])
def test_the_server_reads_the_settings_that_it_is_given(stack: dict[str, object], tmp_path: Path) -> None:
    settings = parse(stack)
    data = admission.objects(settings)["settings"]["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    read = files.read(tmp_path / "settings.json", Settings)
    own = isinstance(read.certificate, OwnCertificate)
    assert own or isinstance(read.certificate, MountedCertificate)
    assert read.dns_name == f"kai-anywhere-admission.{settings.admission.namespace}.svc"
    assert read.webhook_configurations == ("kai-anywhere-reservation",)
    assert Fragment.from_file(tmp_path / "reservation.json").container == reservation.CONTAINER


def test_the_server_knows_names_by_the_same_words() -> None:
    assert f"{PLATFORM}={PLATFORM_TEGRA}" == nodes.SELECTOR
    assert admission.GVIRTUS_ENABLED == gvirtus.ENABLED


def test_rights_are_by_name() -> None:
    made = admission.objects(parse(webhook()))
    rules = made["cluster-role"]["rules"] + made["role"]["rules"]
    assert [rule for rule in rules if "resourceNames" not in rule] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    assert "*" not in json.dumps(rules)
    assert not {"create", "delete", "deletecollection"} & {verb for rule in rules for verb in rule["verbs"]}


def test_with_cert_manager_the_server_writes_nothing() -> None:
    made = admission.objects(parse(cert_manager()))
    assert "secret" not in made
    assert "role" not in made
    assert {verb for rule in made["cluster-role"]["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    annotations = made["reservation-webhook"]["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": "gpu-admission/kai-anywhere-admission"}


def test_other_settings_make_other_pods() -> None:
    def annotation(stack: dict[str, object]) -> str:
        deployment = admission.objects(parse(stack))["deployment"]
        value: str = deployment["spec"]["template"]["metadata"]["annotations"]["kai-anywhere.io/settings"]
        return value

    assert annotation(webhook()) == annotation(webhook())
    assert annotation(webhook()) != annotation(cert_manager())


def test_its_pods_are_not_in_its_own_scope() -> None:
    settings = parse(webhook())
    template = admission.objects(settings)["deployment"]["spec"]["template"]
    assert "app" not in template["metadata"]["labels"]
    [hook] = admission.gvirtus_webhook(settings)["webhooks"]
    [expression] = hook["namespaceSelector"]["matchExpressions"]
    assert {"kube-system", settings.admission.namespace, settings.kai.namespace} <= set(expression["values"])
