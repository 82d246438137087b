"""Event logs as the engine writes them (pulumi 3.259); a test adds or changes one event."""

import json
from collections.abc import Mapping
from typing import Any

from operations.engine_events import Record, read_events

STACK = "urn:pulumi:jetson::kai-anywhere"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


def step(  # noqa: PLR0913 - an event has that many parts
    op: str,
    name: str,
    *,
    type_: str = DEPLOYMENT,
    old: Mapping[str, Any] | None = None,
    new: Mapping[str, Any] | None = None,
    detailed: Mapping[str, Mapping[str, Any]] | None = None,
    after: bool = False,
) -> dict[str, Any]:
    """A step, before it is done or after it."""
    urn = f"{STACK}::{type_}::{name}"

    def state(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return (
            None
            if values is None
            else {"type": type_, "urn": urn, "id": "", "parent": "", "inputs": values, "outputs": values}
        )

    metadata = {
        "op": op,
        "urn": urn,
        "type": type_,
        "old": state(old),
        "new": state(new),
        "detailedDiff": detailed,
        "provider": "",
    }
    return {"resOutputsEvent" if after else "resourcePreEvent": {"metadata": metadata, "planning": True}}


def finding(message: str, *, level: str = "mandatory", name: str = "web") -> dict[str, Any]:
    """What a policy objects to."""
    return {
        "policyEvent": {
            "resourceUrn": f"{STACK}::{DEPLOYMENT}::{name}",
            "message": message,
            "color": "never",
            "policyName": "privilege",
            "policyPackName": "kai-anywhere",
            "policyPackVersion": "0.1.0",
            "policyPackVersionTag": "0.1.0",
            "enforcementLevel": level,
        }
    }


def diagnostic(message: str, *, severity: str = "error", ephemeral: bool = False) -> dict[str, Any]:
    """What program, engine or provider say."""
    return {"diagnosticEvent": {"message": message, "color": "never", "severity": severity, "ephemeral": ephemeral}}


def summary(**changes: int) -> dict[str, Any]:
    """The engine's last words."""
    return {
        "summaryEvent": {
            "maybeCorrupt": False,
            "durationSeconds": 3,
            "resourceChanges": changes,
            "PolicyPacks": {"kai-anywhere": "v0.1.0"},
            "isPreview": True,
        }
    }


def lines(*events: Mapping[str, Any]) -> list[str]:
    """The log's lines."""
    return [json.dumps({"sequence": number, "timestamp": 1, **event}) for number, event in enumerate(events)]


def record(*events: Mapping[str, Any]) -> Record:
    """What a log says."""
    return read_events(lines(*events))
