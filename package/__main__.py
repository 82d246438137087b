"""Serve the package to the engine that started this process: `python PATH/package`, in any folder."""

import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
# Python puts this folder first, where `schema` would be anybody's; the imports here are the repository's.
sys.path[:] = [str(_FOLDER.parent), *(each for each in sys.path if each and Path(each).resolve() != _FOLDER)]

from pulumi.provider import main  # noqa: E402

from package.provider import KaiAnywherePackage  # noqa: E402

if __name__ == "__main__":
    main(KaiAnywherePackage(), sys.argv[1:])
