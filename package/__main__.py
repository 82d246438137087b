"""Serve the package to the engine that started this process: `python PATH/package`, in any folder."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
# Python puts this folder first, where `schema` would be anybody's; the imports here are the repository's.
sys.path[:] = [str(_FOLDER.parent), *(path for path in sys.path if path and Path(path).resolve() != _FOLDER)]

from package.server import serve  # noqa: E402

if __name__ == "__main__":
    # The engine's flags of logging come beside its address.
    address = next(argument for argument in sys.argv[1:] if not argument.startswith("-"))
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(address, sys.argv[1:]))
