"""The whole program: this repository's own `__main__.py` runs it, and that of a team which takes it by version."""

import signal
import threading

import pulumi

from cluster.errors import ClusterError
from components.installation import install, plain_keys
from components.kai_anywhere import KaiAnywhere
from config.stack import SETTINGS_KEY, StackConfigError

_NAME = "kai-anywhere"


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
        top = install(_NAME, pulumi.Config().get(SETTINGS_KEY), file=file, other_keys=other_keys)
    except (StackConfigError, ClusterError) as error:
        raise pulumi.RunError(str(error)) from None
    for name, value in top.outputs.items():
        pulumi.export(name, value)
    return top
