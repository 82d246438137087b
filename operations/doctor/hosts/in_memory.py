"""Runs on the host: takes the agent from stdin into memory and runs it. It must parse under Python 3.6.

An old one gets a sentence here, not from the agent: `os.memfd_create` came with Python 3.8.
"""

import base64
import os
import runpy
import sys

if sys.version_info < (3, 8):  # noqa: UP036 - the host's Python is not ours to choose
    _TOO_OLD = "Python %d.%d is too old: install Python 3.8 or later on the host and have `python3` mean it."
    sys.exit(_TOO_OLD % sys.version_info[:2])

content = base64.b64decode(sys.stdin.buffer.readline())
descriptor = os.memfd_create("kai-host.pyz")
with os.fdopen(os.dup(descriptor), "wb") as agent:
    agent.write(content)
# The agent's children, which ask the driver, find it under this name too.
path = f"/proc/{os.getpid()}/fd/{descriptor}"
sys.argv = sys.argv[1:]
runpy.run_path(path, run_name="__main__")
