"""Serve the package to the engine that started this process."""

import sys

from pulumi.provider import main

from package.provider import KaiAnywherePackage

if __name__ == "__main__":
    main(KaiAnywherePackage(), sys.argv[1:])
