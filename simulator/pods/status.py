"""What the API server is told about a pod that is a process."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.operands.world import Object


def now() -> str:
    """RFC 3339."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class State:
    """Where the process is.

    Attributes:
        container: the container's state as Kubernetes has it: `running`, or `waiting` with reason and message.
        ready: whether Services lead there.
        restarts: how often it was started anew.
        last: how it ended the last time.
    """

    container: Mapping[str, Any]
    ready: bool = False
    restarts: int = 0
    last: Mapping[str, Any] | None = None

    @classmethod
    def waiting(cls, reason: str, message: str, restarts: int = 0, last: Mapping[str, Any] | None = None) -> "State":
        """One that does not run yet, or not now."""
        return cls({"waiting": {"reason": reason, "message": message}}, restarts=restarts, last=last)


def terminated(code: int, started: str) -> dict[str, Any]:
    """How a process ended; a negative `code` is the signal that ended it."""
    return {
        "terminated": {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": "Error" if code else "Completed",
            "startedAt": started,
            "finishedAt": now(),
        }
    }


def patch(pod: Object, state: State, ip: str) -> dict[str, Any]:
    """The strategic merge patch of the pod's status."""
    container = pod["spec"]["containers"][0]
    ready = "True" if state.ready else "False"
    began = "running" in state.container or state.restarts > 0 or state.last is not None
    by_type = {entry["type"]: entry for entry in (pod.get("status") or {}).get("conditions") or ()}
    conditions = []
    for kind, value in (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready)):
        same = by_type.get(kind, {}).get("status") == value
        since = by_type[kind].get("lastTransitionTime") if same else now()
        conditions.append({"type": kind, "status": value, "lastTransitionTime": since})
    return {
        "status": {
            "phase": "Running" if began else "Pending",
            "startTime": (pod.get("status") or {}).get("startTime") or now(),
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": container["image"],
                    "ready": state.ready,
                    "started": "running" in state.container,
                    "restartCount": state.restarts,
                    "state": state.container,
                    "lastState": state.last or {},
                }
            ],
        }
    }
