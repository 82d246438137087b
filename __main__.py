"""The Pulumi program: validate the stack's settings, look at the cluster, register KaiAnywhere."""

import signal
import threading

import pulumi

from cluster.errors import ClusterError
from components.installation import install, plain_keys
from config.stack import BASE_KEY, SETTINGS_KEY, StackConfigError

# Pulumi interrupts its program at Ctrl-C, and tells of it itself: without a traceback of ours. The Automation API runs
# an inline program in a thread of a process that is not ours.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    file, other_keys = f"Pulumi.{pulumi.get_stack()}.yaml", plain_keys()
    said = pulumi.Config()
    top = install("kai-anywhere", said.get(SETTINGS_KEY), file=file, base=said.get(BASE_KEY), other_keys=other_keys)
except (StackConfigError, ClusterError) as error:
    raise pulumi.RunError(str(error)) from None

for name, value in top.outputs.items():
    pulumi.export(name, value)
