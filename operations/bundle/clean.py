"""Takes out of objects and logs what must not leave the cluster, or tells nothing. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from operations.redaction import HIDDEN, LAST_APPLIED, Redactor

Json = dict[str, Any]

_OURS = re.compile(
    r"^([\w.-]*\.)?(nvidia\.com|run\.ai|kai\.scheduler|kai-anywhere\.io|kubernetes\.io|k8s\.io|k8s-sigs\.io)/"
    r"|^(gpu-|runai|kai|received-resource-type|pod-group-name|app$|nvidia)"
)
"""Keys of labels and annotations that KAI, the GPU Operator, Kubernetes or this program writes or reads."""
_PLAIN_VARIABLES = re.compile(
    r"^(NVIDIA_|CUDA_|GPU_|RUNAI_|LD_LIBRARY_PATH$|POD_NAME$|POD_NAMESPACE$|NODE_NAME$|GOMEMLIMIT$|OPERATOR_NAMESPACE$)"
)
_ADDRESS = re.compile(r"(?<![\w.:-])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w.])")
_LOOPBACK_OR_NONE = frozenset({"127.0.0.1", "0.0.0.0", "::1", "::"})  # noqa: S104 - text to be kept, nothing listens


class Cleaner:
    """Cleans the files of one bundle: secrets are hidden, addresses become `address-1`, the same one everywhere.

    Args:
        secrets: values, such as the user's own token.
    """

    def __init__(self, secrets: frozenset[str] = frozenset()) -> None:
        self._redactor = Redactor(secrets)
        self._addresses: dict[str, str] = {}

    def text(self, text: str) -> str:
        """A log, an event's message or any other text."""
        return _ADDRESS.sub(self._address, self._redactor.text(text))

    def component(self, manifest: Mapping[str, Any]) -> Json:
        """An object of KAI, the GPU Operator or this program: whole, without values that may be secret."""
        return self._object(self._redactor.inputs("", manifest))

    def of_tenants(self, manifest: Mapping[str, Any]) -> Json:
        """An object that KAI makes of a workload: it has all labels and annotations of the workload's owner."""
        metadata = manifest["metadata"]
        kept = {key: value for key, value in metadata.items() if key not in {"labels", "annotations"}}
        return self.component({**manifest, "metadata": kept | _known_keys(metadata)})

    def tenant(self, pod: Mapping[str, Any]) -> Json:
        """A pod that shares a GPU: what the scheduler and the kubelet say of it, and nothing of what it does."""
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        kept = {
            key: spec[key]
            for key in ("nodeName", "schedulerName", "runtimeClassName", "priorityClassName")
            if key in spec
        }
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                kept[kind] = [
                    {"name": container["name"], "resources": container.get("resources") or {}}
                    for container in spec[kind]
                ]
        status = pod.get("status") or {}
        kept_status = {
            key: status[key] for key in ("phase", "reason", "message", "conditions", "startTime") if key in status
        }
        states = {
            kind: [
                {
                    key: _without_output(container_status[key])
                    for key in ("name", "ready", "restartCount", "state", "lastState")
                    if key in container_status
                }
                for container_status in status.get(kind) or ()
            ]
            for kind in ("initContainerStatuses", "containerStatuses")
        }
        named = {
            key: metadata[key]
            for key in ("name", "namespace", "creationTimestamp", "deletionTimestamp")
            if key in metadata
        }
        owners = [{"kind": owner["kind"], "name": owner["name"]} for owner in metadata.get("ownerReferences") or ()]
        return self._object(
            {
                "metadata": named | _known_keys(metadata) | {"ownerReferences": owners},
                "spec": kept,
                "status": kept_status | states,
            }
        )

    def node(self, node: Mapping[str, Any]) -> Json:
        """A node: labels and annotations that concern GPUs, what it advertises, its versions and conditions."""
        metadata, status = node["metadata"], node.get("status") or {}
        kept_status = {
            key: status[key] for key in ("capacity", "allocatable", "conditions", "nodeInfo") if key in status
        }
        spec = {key: value for key, value in (node.get("spec") or {}).items() if key in {"taints", "unschedulable"}}
        named = {key: metadata[key] for key in ("name", "creationTimestamp") if key in metadata}
        info = {
            key: value
            for key, value in kept_status.get("nodeInfo", {}).items()
            if key not in {"machineID", "systemUUID", "bootID"}
        }
        return self._object(
            {"metadata": named | _known_keys(metadata), "spec": spec, "status": kept_status | {"nodeInfo": info}}
        )

    def _object(self, content: Json) -> Json:
        cleaned: Json = self._value(content, "")
        return cleaned

    def _value(self, value: Any, key: str) -> Any:  # noqa: ANN401 - JSON
        match value:
            case {"name": str(name), "value": str()} if key == "env" and not _PLAIN_VARIABLES.search(name):
                return value | {"value": HIDDEN}
            case {"secure": str()}:
                return HIDDEN
            case Mapping():
                return {
                    inner: HIDDEN if inner == "caBundle" else self._value(below, inner)
                    for inner, below in value.items()
                    if inner not in {"managedFields", LAST_APPLIED}
                }
            case list():
                return [self._value(item, key) for item in value]
            case str():
                return self.text(value)
            case _:
                return value

    def _address(self, match: re.Match[str]) -> str:
        written = match[0]
        try:
            ipaddress.ip_address(written)
        except ValueError:
            return written
        if written in _LOOPBACK_OR_NONE:
            return written
        return self._addresses.setdefault(written, f"address-{len(self._addresses) + 1}")


def _without_output(state: Any) -> Any:  # noqa: ANN401 - JSON
    """How a container ended, without the end of its log, which the kubelet may keep as `message`."""
    if not isinstance(state, Mapping) or not state.get("terminated"):
        return state
    ended = {key: value for key, value in state["terminated"].items() if key != "message"}
    return {**state, "terminated": ended}


def _known_keys(metadata: Mapping[str, Any]) -> Json:
    """Labels and annotations with keys of components; a tenant's own may say anything."""
    return {
        field: {key: value for key, value in metadata[field].items() if _OURS.search(key) and key != LAST_APPLIED}
        for field in ("labels", "annotations")
        if metadata.get(field)
    }
