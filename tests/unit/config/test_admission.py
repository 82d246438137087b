"""Settings of the admission server, and when it is installed."""

import pytest

from testbed.stacks import (
    STACKS,
    WEBHOOK_STACKS,
    Json,
    assert_refused,
    cert_manager,
    changed,
    gvirtus_webhook,
    jetson,
    never,
    parse,
    webhook,
    without,
    x86,
)


@pytest.mark.parametrize("name", STACKS)
def test_the_server_is_installed_only_where_something_is_carried_by_a_webhook(name: str) -> None:
    assert bool(parse(STACKS[name]()).webhooks) == (name in WEBHOOK_STACKS)


def test_a_carrier_of_overrides_that_are_off_needs_no_server() -> None:
    assert not parse(changed(never(), "reservation.carrier", "webhook")).webhooks


def test_a_webhook_runs_on_a_cluster_before_1_36() -> None:
    assert parse(webhook()).webhooks == ("reservation",)
    assert parse(webhook()).cluster.kubernetes_version == "1.33"


def test_the_server_carries_what_its_carrier_settings_say() -> None:
    assert parse(gvirtus_webhook()).webhooks == ("reservation", "gvirtus")
    remote_alone = changed(gvirtus_webhook(), "reservation.overrides", "never")
    assert parse(remote_alone).webhooks == ("gvirtus",)
    on_x86 = changed(gvirtus_webhook(), "platform", x86()["platform"])
    assert parse(on_x86).webhooks == ("gvirtus",), "reservation pods are changed on Tegra alone"
    assert parse(changed(gvirtus_webhook(), "admission.namespace", "a")).webhooks


def test_remote_gpus_alone_need_the_image_too() -> None:
    stack = without(changed(gvirtus_webhook(), "reservation.overrides", "never"), "admission.image")
    assert_refused(stack, "", "a carrier is 'webhook' (gvirtus.carrier)", "admission.image is not set")
    by_auto = changed(without(gvirtus_webhook(), "admission.image"), "reservation.carrier", "auto")
    ways_out = ("Build it with agents/Containerfile", "1.36 or later", "cluster.mutating_policies: v1beta1")
    why = "(reservation.carrier: auto, with cluster.kubernetes_version 1.33, gvirtus.carrier)"
    assert_refused(by_auto, "", f"a carrier is 'webhook' {why}", *ways_out)
    both = without(gvirtus_webhook(), "admission.image")
    assert_refused(both, "", "a carrier is 'webhook' (reservation.carrier, gvirtus.carrier)")


def test_a_webhook_without_an_image_is_refused_with_both_ways_out() -> None:
    assert_refused(
        without(webhook(), "admission.image"),
        "",
        "a carrier is 'webhook' (reservation.carrier)",
        "admission.image is not set",
        "agents/Containerfile",
        "Kubernetes 1.36 or later",
    )


@pytest.mark.parametrize(
    "image", ["agents", "agents:latest", "registry:5000/agents", "a b:1", "", "agents@sha1:00", "agents:latest@md5:0"]
)
def test_an_image_without_fixed_content_is_refused(image: str) -> None:
    stack = changed(webhook(), "admission.image", image)
    assert_refused(stack, "admission.image", "fixed content", "@sha256:digest", found=image)


@pytest.mark.parametrize("image", ["agents:1", "registry:5000/team/agents:v1.2", "agents@sha256:" + "0" * 64])
def test_an_image_with_a_tag_or_digest_is_accepted(image: str) -> None:
    assert parse(changed(jetson(), "admission.image", image)).admission.image == image


def test_a_namespace_must_fit_into_the_certificate() -> None:
    fits, too_long = "n" * 37, "n" * 38
    assert parse(changed(webhook(), "admission.namespace", fits)).admission.namespace == fits
    stack = changed(webhook(), "admission.namespace", too_long)
    assert_refused(stack, "admission.namespace", "leaves the namespace 37 characters", found=too_long)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replicas", 1),
        ("replicas", 11),
        ("timeout_seconds", 0),
        ("timeout_seconds", 11),
        ("certificates.lifetime_seconds", 59),
        ("certificates.propagation_seconds", 0),
    ],
)
def test_a_number_out_of_bounds_is_refused(key: str, value: int) -> None:
    stack: Json = changed(webhook(), "admission.certificates", {"kind": "own"})
    assert_refused(changed(stack, f"admission.{key}", value), f"admission.{key}", "Input should be", found=value)


def test_a_certificate_must_live_long_enough_to_be_replaced() -> None:
    certificates = {"kind": "own", "lifetime_seconds": 120, "propagation_seconds": 20}
    accepted = parse(changed(webhook(), "admission.certificates", certificates)).admission.certificates
    assert accepted.model_dump() == certificates
    stack = changed(webhook(), "admission.certificates", certificates | {"propagation_seconds": 21})
    assert_refused(stack, "admission.certificates", "lifetime_seconds 120 is too short", "Use at least 126")


def test_cert_manager_needs_an_issuer() -> None:
    stack = changed(webhook(), "admission.certificates", {"kind": "cert-manager"})
    assert_refused(stack, "admission.certificates.issuer", "required")


def test_a_wrong_kind_of_issuer_or_certificates_is_refused_with_those_there_are() -> None:
    stack = changed(cert_manager(), "admission.certificates.issuer_kind", "Vault")
    assert_refused(stack, "admission.certificates.issuer_kind", "'Issuer' or 'ClusterIssuer'", found="Vault")
    stack = changed(webhook(), "admission.certificates", {"kind": "mine"})
    assert_refused(stack, "admission.certificates.kind", "'own', 'cert-manager', 'stack'", found="mine")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], "at least 1 item"),
        (["a", "b", "a"], "authority 'a' is there twice: remove one"),
        (["a", "b", "c", "d", "e"], "at most 4 items"),
    ],
)
def test_authorities_have_names_of_their_own(names: list[str], says: str) -> None:
    stack = changed(webhook(), "admission.certificates", {"kind": "stack", "authorities": names})
    assert_refused(stack, "admission.certificates.authorities", says)


def test_the_name_of_an_authority_is_one_that_kubernetes_takes() -> None:
    stack = changed(webhook(), "admission.certificates", {"kind": "stack", "authorities": ["a", "A"]})
    assert_refused(stack, "admission.certificates.authorities.1", "not a DNS label", found="A")
