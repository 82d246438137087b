"""The entry of the zipapp. It must parse under any Python, so that an old one gets a sentence, not a traceback."""

import sys

if sys.version_info < (3, 8):  # noqa: UP036 - the host's Python is not ours to choose
    _MESSAGE = "Python %d.%d is too old for kai-anywhere's host agent." % sys.version_info[:2]  # noqa: UP031
    _REMEDY = "Install Python 3.8 or later on the host and have `python3` mean it."
    sys.stdout.write('{"error": {"message": "%s", "remedy": "%s"}}\n' % (_MESSAGE, _REMEDY))  # noqa: UP031
    sys.stderr.write("%s %s\n" % (_MESSAGE, _REMEDY))  # noqa: UP031
    sys.exit(1)

from agents.host.cli import main

sys.exit(main(sys.argv[1:]))
