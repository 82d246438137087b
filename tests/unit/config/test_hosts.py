"""Hosts of a stack: how each is reached, by the names of secrets, and what the platform must agree with."""

import base64
import json
from typing import Any

import pytest

from config.hosts import HostSettings
from config.stack import StackConfigError
from manifests.hosts import host_plans
from testbed.stacks import assert_refused, changed, jetson, parse, refusal, without, x86
from tests.support.golden import Golden
from tests.support.hosts.settings import (
    HOST_KEY,
    full_host,
    jetson_with_host,
    local_host,
    mixed_with_hosts,
    ssh_host,
    x86_with_host,
)

_HOST = "hosts.jetson-1"
_SSH = f"{_HOST}.ssh"
_RSA_KEY = "ssh-rsa " + base64.b64encode(b"\0\0\0\x07ssh-rsa" + bytes(range(250))).decode() + " root@jetson-1"
_ECDSA_KEY = "ecdsa-sha2-nistp256 " + base64.b64encode(b"\0\0\0\x13ecdsa-sha2-nistp256" + bytes(range(85))).decode()


def test_a_stack_without_hosts_leaves_every_machine_alone() -> None:
    assert parse(x86()).hosts == {}


def test_the_defaults_of_a_host_are_the_reviewed_ones(golden: Golden) -> None:
    hosts = {"ssh": ssh_host(), "local": local_host(), "full": full_host()}
    golden.check(
        "hosts-defaults",
        {
            name: HostSettings.model_validate_json(json.dumps(host)).model_dump(mode="json")
            for name, host in hosts.items()
        },
    )


def test_a_host_that_says_everything_is_taken() -> None:
    host = parse(jetson_with_host(full_host())).hosts["jetson-1"]
    assert host.secret_names == ("jump-login", "lab-key", "lab-key-password", "lab-sudo")


@pytest.mark.parametrize(
    "host",
    [ssh_host(local=True), {}, {"local": False}, {"gone": True}],
    ids=["both", "neither", "not even local", "gone but where"],
)
def test_a_host_is_reached_in_exactly_one_way(host: dict[str, Any]) -> None:
    assert_refused(jetson_with_host() | {"hosts": {"jetson-1": host}}, _HOST, "say one of ssh", "local: true")


@pytest.mark.parametrize("key", ["address", "user", "host_key"])
def test_what_a_connection_needs_is_required(key: str) -> None:
    assert_refused(without(jetson_with_host(), f"{_SSH}.{key}"), f"{_SSH}.{key}", "required, but missing")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("address", "ubuntu@192.0.2.21", "user and port have keys of their own"),
        ("address", "[fe80::1]", "write it alone, without brackets"),
        ("address", "192.0.2.21:22", "user and port have keys of their own"),
        ("address", "-oProxyCommand=reboot", "not a host name or IP address"),
        ("address", "", "not a host name or IP address"),
        *[("address", typo, "not a host name or IP address") for typo in ("192.168.1.256", "192.168.1", "010.0.0.1")],
        *[("address", other, "not an address of one machine") for other in ("::", "ff02::1", "fe80::1%$(x)")],
        ("user", "ubuntu; reboot", "not a login name"),
        ("user", "-l", "not a login name"),
        ("user", "-x\\jane", "not a login name"),
        ("user", "jane@$(reboot)", "not a login name"),
        ("port", 0, "greater than or equal to 1"),
        ("port", 65536, "less than or equal to 65535"),
        ("host_key", "AAAAC3NzaC1lZDI1NTE5AAAAIBlFmcklCxzuuKgauv", "not a host's public key"),
        ("host_key", f"192.0.2.21 {HOST_KEY}", "from known_hosts, leave the host name out"),
        ("host_key", HOST_KEY.replace("ssh-ed25519", "ecdsa-sha2-nistp256"), "not a host's public key"),
        ("host_key", _RSA_KEY, "an RSA key, which no connection can be pinned to"),
        ("host_key", _RSA_KEY, "`ssh-keyscan -t ed25519 ADDRESS`"),
        ("host_key", HOST_KEY[:-9] + "!", "not a host's public key"),
        ("host_key", f"{HOST_KEY}\nssh-rsa AAAA", "not a host's public key"),
    ],
)
def test_a_value_that_is_no_part_of_a_connection_is_refused(key: str, value: object, says: str) -> None:
    assert_refused(changed(jetson_with_host(), f"{_SSH}.{key}", value), f"{_SSH}.{key}", says, found=value)


@pytest.mark.parametrize("user", ["jane@corp.example.com", "CORP\\jane", "_ops", "1001"])
def test_the_login_of_a_directory_is_taken(user: str) -> None:
    ssh = parse(changed(jetson_with_host(), f"{_SSH}.user", user)).hosts["jetson-1"].ssh
    assert ssh is not None
    assert ssh.user == user


def test_a_user_with_the_address_behind_is_not_taken_for_a_login_of_a_directory() -> None:
    settings = changed(jetson_with_host(), f"{_SSH}.user", "ubuntu@192.0.2.21")
    assert_refused(changed(settings, f"{_SSH}.address", "192.0.2.21"), _SSH, "repeats the address")


@pytest.mark.parametrize("key", [HOST_KEY, f"{HOST_KEY} root@jetson-1", _ECDSA_KEY])
def test_a_host_key_that_a_connection_can_be_pinned_to_is_taken(key: str) -> None:
    ssh = parse(changed(jetson_with_host(), f"{_SSH}.host_key", key)).hosts["jetson-1"].ssh
    assert ssh is not None
    assert ssh.host_key == key


@pytest.mark.parametrize("value", ["192.0.2.21", "2001:db8::21", "jetson-1", "jetson-1.lab.example.com"])
def test_addresses_and_names_are_taken(value: str) -> None:
    ssh = parse(changed(jetson_with_host(), f"{_SSH}.address", value)).hosts["jetson-1"].ssh
    assert ssh is not None
    assert ssh.address == value


@pytest.mark.parametrize("key", [f"{_SSH}.private_key_secret", f"{_HOST}.sudo_password_secret"])
@pytest.mark.parametrize(
    "secret", ["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n", "correct horse battery staple", 1234, ["a"]]
)
def test_a_secret_in_the_place_of_its_name_is_refused_and_not_printed(key: str, secret: object) -> None:
    stack = changed(jetson_with_host(), key, secret)
    assert_refused(stack, key, "not the name of a secret", "pulumi config set --secret NAME")
    assert not isinstance(secret, str) or secret.split()[1] not in refusal(stack)


def test_a_login_needs_a_key_or_a_password_and_not_both() -> None:
    assert_refused(without(jetson_with_host(), f"{_SSH}.private_key_secret"), _SSH, "say one of private_key_secret")
    assert_refused(changed(jetson_with_host(), f"{_SSH}.password_secret", "a"), _SSH, "say one of private_key_secret")


def test_a_bastion_logs_in_as_any_endpoint_does() -> None:
    bastion = {"address": "bastion", "user": "jump", "host_key": HOST_KEY}
    stack = changed(jetson_with_host(), f"{_SSH}.bastion", bastion)
    assert_refused(stack, f"{_SSH}.bastion", "how to log in as 'jump'")
    assert_refused(
        changed(stack, f"{_SSH}.bastion", without(bastion, "host_key") | {"password_secret": "a"}),
        f"{_SSH}.bastion.host_key",
        "required",
    )


@pytest.mark.parametrize(
    ("key", "value", "where", "says"),
    [
        ("docker", {"default_runtime": True}, "docker", "set configure: true"),
        ("timeouts", {"configure_seconds": 300}, "timeouts", "set it above 360"),
        ("ssh.private_key_password_secret", "a", None, ""),
    ],
)
def test_settings_that_need_each_other_stand_together(key: str, value: object, where: str | None, says: str) -> None:
    stack = changed(jetson_with_host(), f"{_HOST}.{key}", value)
    if where is None:
        parse(stack)
    else:
        assert_refused(stack, f"{_HOST}.{where}", says)


def test_one_machine_is_one_host() -> None:
    hosts = {"jetson-1": local_host(), "gpu-1": local_host()}
    assert_refused(jetson_with_host() | {"hosts": hosts}, "hosts", "'jetson-1', 'gpu-1' are all local: true")
    assert parse(jetson_with_host() | {"hosts": hosts | {"gpu-1": local_host(gone=True)}}).hosts


@pytest.mark.parametrize(("one", "other"), [("fe80::1%eth0", "FE80:0::1%eth0"), ("gpu.example.com", "GPU.example.com")])
def test_one_address_in_two_spellings_is_one_host(one: str, other: str) -> None:
    stack = changed(jetson_with_host(), f"{_SSH}.address", one)
    stack = changed(stack, "hosts.gpu-1", stack["hosts"]["jetson-1"])
    stack = changed(stack, "hosts.gpu-1.ssh.address", other)
    assert_refused(stack, "hosts", "the hosts 'jetson-1' and 'gpu-1' have one address")


def test_one_address_is_one_host() -> None:
    stack = changed(jetson_with_host(), "hosts.gpu-1", ssh_host())
    assert_refused(stack, "hosts", "the hosts 'jetson-1' and 'gpu-1' have one address, 192.0.2.21 port 22")
    bastion = {"address": "jump.example.com", "user": "jump", "host_key": HOST_KEY, "password_secret": "jump"}
    for another in ({"ssh.port": 2222}, {"ssh.bastion": bastion}, {"gone": True}):
        [(key, value)] = another.items()
        assert len(parse(changed(stack, f"hosts.gpu-1.{key}", value)).hosts) == 2


def test_the_toolkit_of_a_node_has_one_owner() -> None:
    owner = {"owner": "operator"}
    assert_refused(
        changed(jetson_with_host(), f"{_HOST}.toolkit", owner),
        "",
        "hosts.jetson-1.toolkit.owner is 'operator', but platform.container_toolkit is 'host'",
    )
    stack = x86_with_host(ssh_host(toolkit={"owner": "host"}))
    assert_refused(stack, "", "the GPU Operator of this stack installs the toolkit", "gpu_operator.install: false")
    assert parse(changed(stack, "gpu_operator.install", False)).hosts


def test_images_are_for_k3s() -> None:
    stack = changed(x86_with_host(), "hosts.gpu-1.images", ["app:1"])
    assert_refused(stack, "", "hosts.gpu-1.images is for k3s; the distribution is 'kubeadm'")
    assert parse(changed(stack, "hosts.gpu-1.distribution", "k3s")).hosts


@pytest.mark.parametrize("reference", ["", "-it", "a b", "app:1;reboot", "app@sha256:12", "a" * 600])
def test_what_is_no_image_is_refused(reference: str) -> None:
    stack = changed(jetson_with_host(), f"{_HOST}.images", [reference])
    assert_refused(stack, f"{_HOST}.images.0", "not an image reference", found=reference)


@pytest.mark.parametrize("value", [True, False])
def test_a_stack_file_that_still_has_uuid_names_is_told_to_remove_the_line(*, value: bool) -> None:
    cdi = {"generate": True, "uuid_names": value}
    says = "the key 'uuid_names' does not exist any more. Remove the line: KAI's workloads are told index 0"
    assert_refused(changed(jetson_with_host(), f"{_HOST}.cdi", cdi), f"{_HOST}.cdi", says, "docs/upgrade.md#uuid-names")
    assert_refused(x86_with_host(ssh_host(cdi=cdi)), "hosts.gpu-1.cdi", says)
    assert parse(changed(jetson_with_host(), f"{_HOST}.cdi", {"generate": True})).hosts["jetson-1"].cdi.generate


@pytest.mark.parametrize(("section", "node"), [("tegra_nodes", "jetson-1"), ("unified_memory_nodes", "spark-1")])
def test_the_memory_of_a_node_without_a_host_is_required(section: str, node: str) -> None:
    says = f"platform.{section}.{node}.gpu_memory_mib is required: no host of that name is asked for it"
    stack = mixed_with_hosts()
    assert parse(changed(stack, "platform.tegra_nodes.jetson-1", {})).hosts
    stack = changed(stack, f"platform.{section}.{node}", {})
    assert_refused(without(stack, f"hosts.{node}"), "", says)
    assert_refused(changed(stack, f"hosts.{node}.gone", True), "", says)


def test_a_stack_of_hosts_alone_needs_neither_memory_nor_carrier_of_nodes_that_others_install() -> None:
    stack = changed(changed(jetson(), "installs", "hosts"), "platform.tegra_nodes", {"jetson-1": {}, "jetson-2": {}})
    stack = changed(changed(stack, "hosts", {"jetson-1": ssh_host()}), "cluster.kubernetes_version", "1.33")
    settings = parse(stack)
    assert settings.hosts_alone
    assert (settings.webhooks, settings.policy_carriers) == ((), ())
    with pytest.raises(StackConfigError, match=r"(?s)tegra_nodes.jetson-2.gpu_memory_mib is required"):
        parse(changed(stack, "installs", "everything"))


def test_a_host_of_hosts_alone_is_planned_as_in_a_stack_with_everything() -> None:
    stack = jetson_with_host()
    assert host_plans(parse(changed(stack, "installs", "hosts"))) == host_plans(parse(stack))


def test_another_part_than_hosts_is_refused() -> None:
    with pytest.raises(StackConfigError, match=r"(?s)settings.installs.*'kai'.*'everything' or 'hosts'"):
        parse(changed(jetson(), "installs", "kai"))
