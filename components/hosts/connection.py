"""How the command provider reaches a host, and runs something there."""

from collections.abc import Mapping

import pulumi
from pulumi_command import local, remote
from pulumi_command.remote import ConnectionArgs, ProxyConnectionArgs

from config.hosts import HostSettings, SshEndpoint, SshSettings

_LONGEST_PAUSE_SECONDS = 5
"""Between two attempts of the provider (pulumi-command v1.2.1, back-off from 0.1 s by 1.5)."""
_HANDSHAKE_SECONDS = 60
_STARTING_SECONDS = 60
"""Of sudo, Python and the agent, beyond the limit of what they do."""


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


def custom_timeouts(host: HostSettings, *, seconds: int, delete_seconds: int | None = None) -> pulumi.CustomTimeouts:
    """The engine's own bound of an operation: every attempt to connect, then what runs there.

    Args:
        host: whose dial settings count.
        seconds: what the operation itself may take.
        delete_seconds: the same of its deletion, where that is something else.
    """
    more = _STARTING_SECONDS
    if host.ssh is not None:
        hops = 1 if host.ssh.bastion is None else 2
        dial = host.ssh.dial
        more += hops * (dial.attempts * (dial.timeout_seconds + _LONGEST_PAUSE_SECONDS) + _HANDSHAKE_SECONDS)
    bound = f"{seconds + more}s"
    deleted = bound if delete_seconds is None else f"{delete_seconds + more}s"
    return pulumi.CustomTimeouts(create=bound, update=bound, delete=deleted)


def command(  # noqa: PLR0913 - as of the provider's resource
    name: str,
    create: str,
    opts: pulumi.ResourceOptions,
    *,
    ssh: SshSettings | None,
    secrets: Mapping[str, pulumi.Output[str]],
    delete: str | None = None,
    stdin: pulumi.Output[str] | None = None,
) -> remote.Command | local.Command:
    """Register a command of a host; without SSH it runs here.

    What it prints is logged nowhere and kept as a secret: a diff of a runtime's configuration may show a registry's
    password. The previous output is not handed over: sshd would refuse the variable.
    """
    opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=["stdout", "stderr"]))
    if ssh is None:
        return local.Command(
            name,
            create=create,
            delete=delete,
            stdin=stdin,
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=opts,
        )
    return remote.Command(
        name,
        connection=connection(ssh, secrets),
        create=create,
        delete=delete,
        stdin=stdin,
        logging=remote.Logging.NONE,
        add_previous_output_in_env=False,
        opts=opts,
    )
