"""The agent as one file, from this program's own sources."""

import hashlib
import tempfile
from pathlib import Path

import pulumi
from platformdirs import user_data_path

from agents.host_zipapp import build
from components.hosts.commands import HostAgent

_LAUNCHER = Path(__file__).parent / "launcher.sh"


def build_host_agent() -> HostAgent:
    """Build the agent behind its launcher; the same sources give the same bytes, and so no change in a stack.

    The file stays, below the user's data folder under its own hash: `pulumi destroy` runs no program, and restores a
    host without SSH by the very file that configured it.

    Raises:
        pulumi.RunError: if it can't be kept there.
    """
    folder = user_data_path("kai-anywhere", appauthor=False) / "host-agent"
    try:
        return _built(folder)
    except OSError as error:
        raise pulumi.RunError(
            f"The hosts' agent can't be kept in {folder}: {error.strerror}. Nothing was changed. Make the folder "
            "writable, or set XDG_DATA_HOME to one that stays: `pulumi destroy` needs the file again."
        ) from None


def _built(folder: Path) -> HostAgent:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "kai-host.pyz"
        # A zip archive may follow any other text.
        content = _LAUNCHER.read_bytes() + build(built).read_bytes()
        built.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        path = folder / f"kai-host-{sha256}.pyz"
        if not path.exists() or path.read_bytes() != content:
            built.replace(path)
    return HostAgent(str(path), sha256)
