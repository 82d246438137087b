"""The secrets that hosts need, looked up by name before anything is registered."""

from collections.abc import Mapping

import pulumi
from pulumi.runtime import is_config_secret

from config.hosts import HostSettings
from config.stack import StackConfigError


def read_host_secrets(hosts: Mapping[str, HostSettings]) -> dict[str, pulumi.Output[str]]:
    """Look up every secret that the hosts name; those of a host that is gone are not needed.

    Returns:
        Secret outputs by name.

    Raises:
        StackConfigError: if one is not set, is empty or has a second line where it is a password, or stands in the
            stack file in plain text.
    """
    config = pulumi.Config()
    secrets: dict[str, pulumi.Output[str]] = {}
    problems: list[str] = []
    for node, host in sorted(hosts.items()):
        for name in () if host.gone else host.secret_names:
            value = config.get(name)
            key = f"{config.name}:{name}"
            if not value:
                problems.append(
                    f"  {key} is not set, and host '{node}' needs it.\n"
                    f"    Store it: pulumi config set --secret {name} (reads the value from stdin)"
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
    if problems:
        raise StackConfigError(
            "\n".join(["Secrets of hosts are missing. Nothing was changed.", *dict.fromkeys(problems)])
        )
    return secrets
