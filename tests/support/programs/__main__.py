"""Gets what only some tests ask for, beside the tests that run: `python -m tests.support.programs`.

Nothing depends on it: a test that needs a program gets it itself, and waits where it is just being built.
"""

import signal
import sys

import toolchain
from tests.support import programs
from tests.support.pods.real_node import missing


def needed() -> tuple[toolchain.Program, ...]:
    """The programs that tests of this machine need, and that no stack does; none for tests that are skipped here."""
    return (
        *programs.HOSTS,
        *toolchain.LANGUAGES,
        *toolchain.PACKAGES,
        *toolchain.CHARTS,
        *toolchain.REGISTRIES,
        programs.PROMTOOL,
        *toolchain.OLDER,
        *(() if missing() else programs.NODE),
    )


if __name__ == "__main__":
    # Whoever ends this process ends what it builds too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    toolchain.install(needed())
