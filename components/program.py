"""The whole program: this repository's own `__main__.py` runs it, and that of a team which takes it by version."""

import json
import re
import signal
import threading
from importlib.metadata import PackageNotFoundError, distribution

import pulumi

from cluster.errors import ClusterError
from components.installation import install, plain_keys, settings_of_file
from components.kai_anywhere import KaiAnywhere
from config.stack import StackConfigError

_NAME = "kai-anywhere"
_TAG = re.compile(r"v\d+\.\d+\.\d+")
_COMMIT_LETTERS = 12


def run() -> KaiAnywhere:
    """Validate the stack's settings, look at the cluster, register everything, export what it tells.

    Returns:
        The component, for a program that has more to register after it.

    Raises:
        pulumi.RunError: if a setting is wrong or the cluster is not ready; nothing was registered then.
    """
    # Pulumi interrupts its program at Ctrl-C, and tells of it itself: without a traceback of ours. The Automation API
    # runs an inline program in a thread of a process that is not ours.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        file, other_keys = f"Pulumi.{pulumi.get_stack()}.yaml", plain_keys()
        settings, base = settings_of_file(file)
        top = install(_NAME, settings, file=file, base=base, other_keys=other_keys)
    except (StackConfigError, ClusterError) as error:
        raise pulumi.RunError(str(error)) from None
    for name, value in top.outputs.items():
        pulumi.export(name, value)
    if (version := program_version()) is not None:
        pulumi.export("program_version", version)
    return top


def program_version() -> str | None:
    """What an installer noted of the Git repository that it took this program from; nothing for a checkout.

    The note is PyPA's direct_url.json.
    """
    try:
        noted = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}").get("vcs_info")
    except PackageNotFoundError:
        return None
    if noted is None:
        return None
    revision = str(noted.get("requested_revision"))
    return revision if _TAG.fullmatch(revision) else str(noted["commit_id"])[:_COMMIT_LETTERS]
