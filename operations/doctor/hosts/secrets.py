"""The secrets that hosts need, out of the stack's own configuration."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from config.hosts import HostSettings
from operations.doctor.hosts.answer import HostLookError
from operations.stack_file import project_of


def read_secrets(
    stack: str, hosts: Mapping[str, HostSettings], project: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Decrypt what the hosts name, by pulumi, over a pipe; nothing else is kept.

    Args:
        stack: its name.
        hosts: by node; those that are gone need nothing.
        project: the folder of Pulumi.yaml.
        environment: of pulumi, with the stack's backend and passphrase.

    Raises:
        HostLookError: if pulumi can't decrypt them, or one is missing, empty or stands in plain text.
    """
    nodes_by_secret = {name: node for node, host in hosts.items() if not host.gone for name in host.secret_names}
    if not nodes_by_secret:
        return {}
    command = ["pulumi", "config", "--show-secrets", "--json", "--stack", stack, "--non-interactive"]
    result = subprocess.run(
        [*command, "--cwd", str(project)], env=dict(environment), check=False, capture_output=True, text=True
    )
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        raise HostLookError(
            f"pulumi can't decrypt the secrets of stack '{stack}': {lines[-1] if lines else 'it said nothing'}. Log in "
            "to the stack's backend, and give its passphrase: PULUMI_CONFIG_PASSPHRASE"
        )
    config, prefix = json.loads(result.stdout), project_of(project)
    secrets: dict[str, str] = {}
    for name, node in sorted(nodes_by_secret.items()):
        entry = config.get(f"{prefix}:{name}", {})
        if not entry.get("value"):
            raise HostLookError(
                f"the secret '{name}', which host '{node}' needs, is not set. Store it: pulumi config set --secret "
                f"{name}"
            )
        if not entry.get("secret"):
            raise HostLookError(
                f"the secret '{name}' stands in the stack file in plain text. Change it everywhere it is used, then: "
                f"pulumi config set --secret {name}"
            )
        secrets[name] = str(entry["value"])
    return secrets
