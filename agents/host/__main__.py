"""The entry of the zipapp. It must parse under any Python, so that an old one gets a sentence, not a traceback."""

import sys

_ANSWER = '{"error": {"message": "%s", "remedy": "%s"}}\n'

if sys.version_info < (3, 8):  # noqa: UP036 - the host's Python is not ours to choose
    _MESSAGE = "Python %d.%d is too old for kai-anywhere's host agent." % sys.version_info[:2]  # noqa: UP031
    _REMEDY = (
        "Install Python 3.8 or later on the host and have `python3` mean it, also for sudo, which looks for it in the "
        "folders of its secure_path alone."
    )
    sys.stdout.write(_ANSWER % (_MESSAGE, _REMEDY))
    sys.stderr.write("%s %s\n" % (_MESSAGE, _REMEDY))  # noqa: UP031
    sys.exit(1)

try:
    from agents.host.cli import main
except ImportError as error:
    # Debian's `python3-minimal` and Yocto's `python3-core` leave out most of the standard library, JSON too.
    _MESSAGE = "Python's standard library is not all there: {}.".format(str(error).replace('"', "'"))
    _REMEDY = "Install the package `python3` of Debian, Ubuntu or RHEL, or `python3-modules` of Yocto."
    sys.stdout.write(_ANSWER % (_MESSAGE, _REMEDY))
    sys.stderr.write("{} {}\n".format(_MESSAGE, _REMEDY))  # noqa: UP032 - parsed by any
    sys.exit(1)

sys.exit(main(sys.argv[1:]))
