"""Gets what only some tests ask for, beside the tests that run: `python -m tests.support.programs`.

Nothing depends on it: a test that needs a program gets it itself, and waits where it is just being built.
"""

import sys

import toolchain
from tests.support.pods.real_node import missing
from toolchain.__main__ import main


def wanted() -> tuple[toolchain.Program, ...]:
    """The programs that tests of this machine need, and that no stack does; none for tests that are skipped here."""
    node = () if missing() else toolchain.NODE
    return (
        *toolchain.HOSTS,
        *toolchain.LANGUAGES,
        *toolchain.PACKAGES,
        *toolchain.CHARTS,
        *toolchain.REGISTRIES,
        *toolchain.MONITORING,
        *toolchain.OLDER,
        *node,
    )


if __name__ == "__main__":
    sys.argv[1:] = ["install", *wanted()]
    main()
