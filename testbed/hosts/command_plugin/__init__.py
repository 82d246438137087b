"""A stand-in for the resource plugin `pulumi-resource-command`, for tests and benchmarks alone.

The official plugin (pulumi-command v1.2.1) can't be had everywhere. This one serves `command:remote:Command`,
`command:remote:CopyToRemote` and `command:local:Command` to the real engine over gRPC, with the same inputs, outputs,
error texts and order of events as its source has. Where it differs:

- It connects with the system's OpenSSH programs instead of Go's SSH library; so a bastion is a ProxyJump, and its own
  dial settings are not counted apart.
- Keys only: a connection with a password, an encrypted key or an agent is refused.
- The engine's custom timeouts end a running command; the official plugin only stops dialling.
- Assets are local files; no archives, no folders, no URIs.
- Environment variables that the server does not accept are dropped instead of refused.
"""

import os
import shlex
import sys
from pathlib import Path

KEEP_ALIVE = "COMMAND_PLUGIN_KEEP_ALIVE_SECONDS"
"""The variable that says how often a silent connection is asked for a sign of life; the ninth without one ends it."""
SESSIONS = "command-plugin-"
"""How the folder of a connection begins, below TMPDIR."""
_ROOT = Path(__file__).parents[3]


def install(folder: Path) -> Path:
    """Write the plugin's program, which the engine finds where the folder is on PATH.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "pulumi-resource-command"
    program.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(_ROOT))} exec {shlex.quote(sys.executable)} "
        '-m testbed.hosts.command_plugin "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return folder


def environment(folder: Path, base: dict[str, str]) -> dict[str, str]:
    """An environment in which the engine finds the plugin, and no SSH agent is asked."""
    path = os.pathsep.join([str(install(folder)), base["PATH"]])
    return {key: value for key, value in base.items() if key != "SSH_AUTH_SOCK"} | {"PATH": path}
