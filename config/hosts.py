"""Hosts that a stack prepares for GPUs: how to reach each, and what is put into force there.

Secrets stand here by name alone: `private_key_secret: lab-key` means the value that
`pulumi config set --secret lab-key` stored. A secret's value in the settings is refused without being printed.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum, unique
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from config.cluster import Distribution
from config.images import ImageReference
from config.model import HIDDEN, Settings
from config.platform import RuntimeMode, ToolkitOwner

_SECRET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*")
_NUMBERS_ALONE = re.compile(r"([0-9]+|0[xX][0-9a-fA-F]*)(\.([0-9]+|0[xX][0-9a-fA-F]*))*")
_ZONE = re.compile(r"[A-Za-z0-9._-]+")
# With the domain of a directory, as sssd and winbind spell it: `jane@corp.example.com`, `CORP\jane`.
_USER = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]{0,63}\\)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?"
)
_HOST_KEY = re.compile(
    r"(?P<kind>ssh-ed25519|ecdsa-sha2-nistp(256|384|521)) (?P<key>[A-Za-z0-9+/]{40,1400}={0,2})"
    r"( [\x20-\x7e]{1,100})?"
)


def _secret_name(value: object) -> object:
    if not isinstance(value, str) or not _SECRET_NAME.fullmatch(value):
        raise PydanticCustomError(
            HIDDEN,
            "not the name of a secret (letters, digits, '.', '_' and '-'; not shown, since it may be the secret "
            "itself). Store the value with `pulumi config set --secret NAME`, and write NAME here",
        )
    return value


def _address(value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        # No name ends in a number (RFC 1123); programs make an address of `192.168.1`, which is another machine.
        if not _HOST_NAME.fullmatch(value) or _NUMBERS_ALONE.fullmatch(value):
            raise PydanticCustomError(
                "host_address",
                "not a host name or IP address: write it alone, without brackets; user and port have keys of their own",
            ) from None
    else:
        zone = value.partition("%")[2]
        if address.is_unspecified or address.is_multicast or (zone and not _ZONE.fullmatch(zone)):
            raise PydanticCustomError(
                "host_address", "not an address of one machine: write its host name, or its own IP address"
            )
    return value


def _machine(address: str) -> str:
    """An address in one spelling: `FE80:0::1` is `fe80::1`, and a name's capitals mean nothing."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address.lower()


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise PydanticCustomError(
            "host_user",
            "not a login name: letters, digits, '.', '_' and '-', with the domain of a directory where it has one "
            "('jane@corp.example.com', 'CORP\\jane')",
        )
    return value


def _host_key(value: str) -> str:
    """Check that the key's type is the one inside its data, as sshd wrote it.

    No RSA key. Symptom: every attempt to connect fails, `ssh: handshake failed: ssh: no common algorithm for host key`.
    For a pinned `ssh-rsa` key the command provider (pulumi-command v1.2.1) offers the signature of that name alone,
    which is SHA-1, and OpenSSH does not sign with it since 8.8.
    """
    if value.startswith("ssh-rsa "):
        raise PydanticCustomError(
            "host_key",
            "an RSA key, which no connection can be pinned to: for it, Pulumi's command provider takes signatures with "
            "SHA-1 alone, and OpenSSH makes none since 8.8. Take the host's ssh-ed25519 or ecdsa-sha2-nistp256 key: "
            "the line of /etc/ssh/ssh_host_ed25519_key.pub there. `ssh-keyscan -t ed25519 ADDRESS` shows it from afar; "
            "compare it with that file",
        )
    match = _HOST_KEY.fullmatch(value)
    if match is not None:
        kind = match["kind"].encode()
        try:
            data = base64.b64decode(match["key"], validate=True)
        except binascii.Error:
            data = b""
        if data.startswith(len(kind).to_bytes(4, "big") + kind):
            return value
    raise PydanticCustomError(
        "host_key",
        "not a host's public key, such as 'ssh-ed25519 AAAA...': take the line of /etc/ssh/ssh_host_ed25519_key.pub on "
        "the host; from known_hosts, leave the host name out",
    )


SecretName = Annotated[str, BeforeValidator(_secret_name), Field(title="secret name", examples=["lab-key"])]
"""The name of a secret in the stack's own configuration."""
Address = Annotated[str, AfterValidator(_address), Field(title="host name or IP address", examples=["192.168.1.21"])]
User = Annotated[str, AfterValidator(_user), Field(title="login name", examples=["ubuntu"])]
HostKey = Annotated[
    str,
    AfterValidator(_host_key),
    Field(
        title="SSH host key",
        examples=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlFmcklCxzuuKgauv/SV1Xb/Di/+2Y4hmFkoW6xI8tk"],
    ),
]
"""A host's public key, which the connection is pinned to."""


@unique
class HostCheck(StrEnum):
    """When a host is asked whether everything is still in force.

    `on_change` asks after each configuration. `always` asks at every `pulumi up` too, which shows as one update per
    host; a drift is then an error.
    """

    ON_CHANGE = "on_change"
    ALWAYS = "always"


class DialSettings(Settings):
    """How long a connection is tried: 60 refused attempts are about 260 s, enough for a host that reboots."""

    attempts: Annotated[int, Field(ge=1, le=1000)] = 60
    """How often a connection is tried."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 15
    """How long one attempt may take."""


class SshEndpoint(Settings):
    """One SSH server and how to log in there."""

    address: Address
    """Host name or IP address of the machine."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """Port of its SSH server."""
    user: User
    """The account to log in as."""
    host_key: HostKey
    """The host's own public key, from /etc/ssh/ssh_host_ed25519_key.pub there. No other machine is accepted."""
    private_key_secret: SecretName | None = None
    """Name of the secret that holds the private key. Either this or `password_secret` is required."""
    private_key_password_secret: SecretName | None = None
    """Name of the secret that holds the private key's password, if it has one."""
    password_secret: SecretName | None = None
    """Name of the secret that holds the account's password, instead of a private key."""

    @model_validator(mode="after")
    def _the_user_alone(self) -> Self:
        if self.user.endswith(f"@{self.address}"):
            raise PydanticCustomError(
                "host_user",
                "user '{user}' repeats the address: write the login name alone",
                {"user": self.user},
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_log_in(self) -> Self:
        if (self.private_key_secret is None) == (self.password_secret is None):
            raise PydanticCustomError(
                "host_login",
                "say one of private_key_secret and password_secret: how to log in as '{user}'",
                {"user": self.user},
            )
        if self.private_key_password_secret is not None and self.private_key_secret is None:
            raise PydanticCustomError(
                "host_login", "private_key_password_secret is said without private_key_secret: remove it"
            )
        return self


class SshSettings(SshEndpoint):
    """A host behind SSH, directly or through one bastion."""

    bastion: SshEndpoint | None = None
    dial: DialSettings = DialSettings()


class HostToolkit(Settings):
    """The NVIDIA Container Toolkit of one host; what is not said comes from the platform."""

    owner: ToolkitOwner | None = None
    mode: RuntimeMode | None = None


class DockerSettings(Settings):
    """Docker's daemon.json, which is merged, never overwritten."""

    configure: bool = False
    """Whether the NVIDIA runtime is added to Docker."""
    default_runtime: bool = False
    """Whether it is Docker's default runtime too. Needs `configure`."""

    @model_validator(mode="after")
    def _default_runtime_is_configured(self) -> Self:
        if self.default_runtime and not self.configure:
            raise PydanticCustomError(
                "docker_default_runtime", "default_runtime is true, but configure is false: set configure: true"
            )
        return self


class CdiSettings(Settings):
    """Whether a CDI specification is written."""

    generate: bool = False
    """Whether /etc/cdi/nvidia.yaml is written with the names of the GPU."""

    removed_keys: ClassVar[Mapping[str, str]] = {
        "uuid_names": "Remove the line: KAI's workloads are told index 0 of a Jetson's one GPU, which every "
        "specification names, unless reservation.overrides is never. The next pulumi up takes the UUID out of the "
        "host's specification (docs/upgrade.md#uuid-names-of-hosts)."
    }


class HostTimeouts(Settings):
    """Bounds of what runs on a host."""

    probe_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """How long it may take to look at a host."""
    configure_seconds: Annotated[int, Field(ge=30, le=7200)] = 900
    """How long it may take to change a host. More than twice `restart_seconds`."""
    restart_seconds: Annotated[int, Field(ge=10, le=1800)] = 180
    """How long a restarted container runtime may take to answer, before everything is rolled back."""

    @model_validator(mode="after")
    def _a_restart_and_its_roll_back_fit(self) -> Self:
        if 2 * self.restart_seconds >= self.configure_seconds:
            raise PydanticCustomError(
                "host_timeouts",
                "configure_seconds {configure} leaves no time for a restart and its roll-back of restart_seconds "
                "{restart} each: set it above {least}",
                {
                    "configure": self.configure_seconds,
                    "restart": self.restart_seconds,
                    "least": 2 * self.restart_seconds,
                },
            )
        return self


class HostSettings(Settings):
    """One host, by the name of its node."""

    ssh: SshSettings | None = None
    local: bool = False
    """The machine that runs Pulumi, without SSH."""
    gone: bool = False
    """The machine does not exist any more: it is left as it is and never contacted again."""
    sudo_password_secret: SecretName | None = None
    """Name of the secret that holds the password for sudo, where sudo asks for one."""
    revision: Annotated[int, Field(ge=0)] = 0
    """Raise it to run everything again, for example after a repair by hand."""
    check: HostCheck = HostCheck.ON_CHANGE
    distribution: Distribution | None = None
    """By default cluster.distribution."""
    toolkit: HostToolkit = HostToolkit()
    docker: DockerSettings = DockerSettings()
    cdi: CdiSettings = CdiSettings()
    images: Annotated[tuple[ImageReference, ...], Field(strict=False)] = ()
    """k3s only: images of the host's Docker that its containerd must have."""
    gpu_memory_reserve_mib: Annotated[int, Field(ge=0, le=1024 * 1024)] = 2048
    """What the system keeps of memory that it shares with the GPU, where gpu_memory_mib is not declared."""
    timeouts: HostTimeouts = HostTimeouts()

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> Self:
        if self.local == (self.ssh is not None):
            raise PydanticCustomError("host_reach", "say one of ssh (address, user, host_key, ...) and local: true")
        return self

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Every secret that reaching and changing this host needs, sorted."""
        endpoints = [] if self.ssh is None else [self.ssh, self.ssh.bastion]
        names = [self.sudo_password_secret]
        for endpoint in endpoints:
            if endpoint is not None:
                names += [endpoint.private_key_secret, endpoint.private_key_password_secret, endpoint.password_secret]
        return tuple(sorted({name for name in names if name is not None}))


def check_hosts(hosts: dict[str, HostSettings]) -> dict[str, HostSettings]:
    """Refuse two hosts that are one machine."""
    local = [node for node, host in hosts.items() if host.local and not host.gone]
    if len(local) > 1:
        raise PydanticCustomError(
            "two_local_hosts",
            "the hosts {nodes} are all local: true, but this machine is one node. Leave it at one.",
            {"nodes": ", ".join(f"'{node}'" for node in local)},
        )
    owner: dict[object, str] = {}
    for node, host in hosts.items():
        if host.ssh is None or host.gone:
            continue
        # Behind another bastion, the same private address is another machine.
        bastion = host.ssh.bastion and (_machine(host.ssh.bastion.address), host.ssh.bastion.port)
        if (other := owner.setdefault((_machine(host.ssh.address), host.ssh.port, bastion), node)) != node:
            raise PydanticCustomError(
                "two_hosts_one_address",
                "the hosts '{first}' and '{second}' have one address, {address} port {port}, so they are one machine. "
                "Correct the address, or leave one of them.",
                {"first": other, "second": node, "address": host.ssh.address, "port": host.ssh.port},
            )
    return hosts
