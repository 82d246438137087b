"""The secrets that hosts need, looked up by name before anything is registered."""

from collections.abc import Mapping
from functools import partial

import pulumi
from pulumi.runtime import is_config_secret

from config.hosts import HostSettings
from config.stack import StackConfigError

HOST_SECRETS = "host_secrets"
"""The package's input with the secrets of hosts by name."""


def read_host_secrets(
    hosts: Mapping[str, HostSettings], given: Mapping[str, pulumi.Output[str]] | None = None
) -> dict[str, pulumi.Output[str]]:
    """Look up every secret that the hosts name; those of a host that is gone are not needed.

    Args:
        hosts: the hosts by node.
        given: secrets that the caller of the package passes by name; the others stand in the configuration.

    Returns:
        Secret outputs by name.

    Raises:
        StackConfigError: if one is not set, is empty or has a second line where it is a password, stands in the
            stack file in plain text, or is given though no host names it.
    """
    config = pulumi.Config()
    given = given or {}
    secrets: dict[str, pulumi.Output[str]] = {}
    problems: list[str] = []
    for node, host in sorted(hosts.items()):
        for name in () if host.gone else host.secret_names:
            if name in given:
                secret: pulumi.Output[str] = pulumi.Output.secret(given[name])
                secrets[name] = secret.apply(partial(_usable, name, one_line=name == host.sudo_password_secret))
                continue
            value = config.get(name)
            key = f"{config.name}:{name}"
            if not value:
                problems.append(
                    f"  {key} is not set, and host '{node}' needs it.\n"
                    f"    Store it: pulumi config set --secret {name} (reads the value from stdin)"
                    + (f"; or give it: {HOST_SECRETS}.{name}" if given else "")
                )
            elif not is_config_secret(key):
                problems.append(
                    f"  {key} stands in the stack file in plain text.\n"
                    f"    Change that secret everywhere it is used, then: pulumi config set --secret {name}"
                )
            elif name == host.sudo_password_secret and "\n" in value:
                problems.append(f"  {key} has several lines; a sudo password has one.")
            else:
                secrets[name] = pulumi.Output.secret(value)
    if unread := _without_a_host(given, hosts):
        problems = [f"{HOST_SECRETS} does not fit. Nothing was changed.", *unread, *dict.fromkeys(problems)]
        raise StackConfigError("\n".join(problems))
    if problems:
        raise StackConfigError(
            "\n".join(["Secrets of hosts are missing. Nothing was changed.", *dict.fromkeys(problems)])
        )
    return secrets


def _without_a_host(given: Mapping[str, object], hosts: Mapping[str, HostSettings]) -> list[str]:
    names = sorted({name for host in hosts.values() for name in host.secret_names})
    reason = f"the hosts name {', '.join(names)}" if names else "no host names a secret"
    return [
        f"  {HOST_SECRETS}.{name} is not read by anything: {reason}.\n"
        "    Correct the name, remove it, or name it in the settings, as in hosts.NODE.sudo_password_secret"
        for name in sorted(given.keys() - set(names))
    ]


def _usable(name: str, value: str, *, one_line: bool) -> str:
    """A given secret, which may be known only while resources are made: before anything depends on it.

    Raises:
        StackConfigError: if it is empty, or has several lines where it is a password.
    """
    if not value:
        raise StackConfigError(f"{HOST_SECRETS}.{name} is empty. No host was contacted with it.")
    if one_line and "\n" in value:
        raise StackConfigError(f"{HOST_SECRETS}.{name} has several lines; a sudo password has one.")
    return value
