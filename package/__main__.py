"""Serve the package to the engine that started this process."""

import asyncio
import sys
from contextlib import suppress

from package.server import serve

if __name__ == "__main__":
    # The engine's flags of logging come beside its address.
    address = next(each for each in sys.argv[1:] if not each.startswith("-"))
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(address, sys.argv[1:]))
