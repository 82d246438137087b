"""What comes of a pod of the probe, as JSON: parts of its status, its log, its events."""

from operations.privilege_probe.ladder import ANSWER
from testbed.stacks import Json

UUID = "GPU-5d41402a-bc4b-2a76-b971-9d911017c592"
HELD: Json = {"annotations": {ANSWER: UUID}, "log": "Found 1 GPU devices", "state": {"running": {}}}


def failed(log: str) -> Json:
    """A pod whose program ended with this log."""
    return {"phase": "Failed", "log": log, "state": {"terminated": {"reason": "Error", "exitCode": 1}}}


def not_created(message: str) -> Json:
    """A pod whose container the runtime does not create."""
    return {"phase": "Pending", "state": {"waiting": {"reason": "CreateContainerError", "message": message}}}


def refused(message: str, code: int = 403) -> Json:
    """A pod that admission refuses."""
    return {"refused": message, "code": code}
