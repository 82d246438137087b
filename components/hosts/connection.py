"""How the command provider reaches a host."""

from collections.abc import Mapping

import pulumi
from pulumi_command.remote import ConnectionArgs, ProxyConnectionArgs

from config.hosts import HostSettings, SshEndpoint, SshSettings

_LONGEST_PAUSE_SECONDS = 5
"""Between two attempts of the provider (pulumi-command v1.2.1, back-off from 0.1 s by 1.5)."""
_HANDSHAKE_SECONDS = 60


def connection(ssh: SshSettings, secrets: Mapping[str, pulumi.Output[str]]) -> ConnectionArgs:
    """The provider's arguments: host keys are always pinned, since the provider accepts any without one.

    Args:
        ssh: the host, and its bastion if there is one.
        secrets: by name; one that is not there is left out, as for a host that is gone.
    """

    def secret(name: str | None) -> pulumi.Output[str] | None:
        return None if name is None else secrets.get(name)

    def login(endpoint: SshEndpoint) -> dict[str, pulumi.Output[str] | None]:
        return {
            "private_key": secret(endpoint.private_key_secret),
            "private_key_password": secret(endpoint.private_key_password_secret),
            "password": secret(endpoint.password_secret),
        }

    bastion = ssh.bastion
    return ConnectionArgs(
        host=ssh.address,
        port=ssh.port,
        user=ssh.user,
        host_key=ssh.host_key,
        dial_error_limit=ssh.dial.attempts,
        per_dial_timeout=ssh.dial.timeout_seconds,
        proxy=None
        if bastion is None
        else ProxyConnectionArgs(
            host=bastion.address,
            port=bastion.port,
            user=bastion.user,
            host_key=bastion.host_key,
            dial_error_limit=ssh.dial.attempts,
            per_dial_timeout=ssh.dial.timeout_seconds,
            **login(bastion),
        ),
        **login(ssh),
    )


def custom_timeouts(host: HostSettings, *, seconds: int) -> pulumi.CustomTimeouts:
    """The engine's own bound of an operation: every attempt to connect, then what runs there.

    Args:
        host: whose dial settings count.
        seconds: what the operation itself may take.
    """
    if host.ssh is not None:
        hops = 1 if host.ssh.bastion is None else 2
        dial = host.ssh.dial
        seconds += hops * (dial.attempts * (dial.timeout_seconds + _LONGEST_PAUSE_SECONDS) + _HANDSHAKE_SECONDS)
    bound = f"{seconds}s"
    return pulumi.CustomTimeouts(create=bound, update=bound, delete=bound)
