"""What a start leaves for the next one: ports and running processes, in `processes.json`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulator.files import write_private
from simulator.processes import Running


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProcessRecord(_Strict):
    """A process that was started; `fingerprint` changes when it would be started differently today."""

    pid: int = Field(gt=1)
    started: str
    fingerprint: str

    @property
    def running(self) -> Running:
        """The process meant."""
        return Running(self.pid, self.started)


class Ports(_Strict):
    """The loopback ports in use."""

    # Files of older versions name the ports of etcd, which has none any more.
    model_config = ConfigDict(extra="ignore")

    api_server: int = Field(ge=1, le=65535)
    egress: int = Field(ge=1, le=65535)


class Records(_Strict):
    """The whole file."""

    ports: Ports
    folder: str = ""
    """Where the processes work."""
    programs: str | None = None
    """The folder of KAI's programs, or `images`; None where KAI is emulated."""
    processes: dict[str, ProcessRecord] = {}

    def with_process(self, name: str, record: ProcessRecord) -> "Records":
        """The same with one process more."""
        return self.model_copy(update={"processes": {**self.processes, name: record}})


def read(path: Path) -> Records | None:
    """What the last start wrote; None where there is nothing readable.

    An unreadable file is no error: processes are also found by their arguments, so the next start converges.
    """
    try:
        state = Records.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    # In the copy of a checkout the file names the original's processes. A checkout that was moved still has its own.
    if state.folder not in {"", str(path.parent)} and Path(state.folder).is_dir():
        return state.model_copy(update={"processes": {}})
    return state


def write(path: Path, records: Records) -> None:
    """Replace the file in one step.

    Raises:
        OSError: the folder can't be written.
    """
    write_private(path, records.model_dump_json(indent=2).encode() + b"\n")
