"""`python -m agents.admission [FOLDER]`: FOLDER holds settings.json, and files of endpoints."""

import asyncio
import gc
import logging
import sys
from pathlib import Path

from agents.admission.errors import SettingsError
from agents.admission.observability import log_to_stderr
from agents.admission.server import serve
from agents.admission.settings import Settings

DEFAULT_FOLDER = Path("/etc/kai-anywhere")
_LOG = logging.getLogger("agents.admission")


async def _listening(port: int, health_port: int) -> None:
    _LOG.info("listening", extra={"port": port, "health_port": health_port})


def main(arguments: list[str]) -> int:
    """Run the server; the exit status is 0 after SIGTERM, 2 if it can't start."""
    log_to_stderr()
    folder = Path(arguments[0]) if arguments else DEFAULT_FOLDER
    # What was imported lives for ever: not looked at in each collection.
    gc.collect()
    gc.freeze()
    try:
        settings = Settings.from_file(folder / "settings.json")
        asyncio.run(serve(settings, folder, listening=_listening))
    except (SettingsError, OSError) as error:
        _LOG.error("the server can't run", extra={"error": str(error)})
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
