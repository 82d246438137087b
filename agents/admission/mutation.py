"""Mutations of pods as the stack describes them; nothing here knows what they are for.

The structs are the part `mutations` of settings.json; `manifests/mutations.py`, which writes it, says what each of
their fields means.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agents.admission.errors import RefusalError
from agents.admission.pods import Pod, annotations_of, check_lengths, labels_of, merge, merge_by

_MARK = re.compile(r"\{(\w+)\}")
_Entry = Mapping[str, Any]


class Pods(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which pods are changed."""

    labels: dict[str, str]
    namespace: str | None = None
    node_labels: dict[str, str] = {}


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a pod says itself comes first. Without this, what is added does."""

    volume: dict[str, Any] = {}
    volume_taken: str = ""
    path_taken: str = ""
    left_alone: str = ""


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """An environment variable."""

    name: str
    value: str


class Fragment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a pod gets."""

    container: str | None = None
    container_missing: str = ""
    annotations: dict[str, str] = {}
    runtime_class_name: str | None = None
    env: list[Variable] = []
    volumes: list[dict[str, Any]] = []
    volume_mounts: list[dict[str, Any]] = []
    security_context: dict[str, Any] = {}
    pod_security_context: dict[str, Any] = {}
    own: Own | None = None

    def __post_init__(self) -> None:
        for entries, keys in ((self.volumes, {"name"}), (self.volume_mounts, {"name", "mountPath"})):
            if not all(keys <= entry.keys() for entry in entries):
                raise ValueError(f"an entry of volumes or volumeMounts lacks {' or '.join(sorted(keys))}")


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How a pod chooses among fragments."""

    annotation: str
    default: str | None
    unnamed: str
    unknown: str
    not_yet: str


class Warnings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What is doubtful about pods that are let through."""

    annotations: dict[str, str] = {}
    more_than_one: dict[str, str] = {}


class Rewrite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """At a pod's update: an annotation that another program writes gets another value, and ours keeps what it wrote."""

    annotation: str
    value: str
    kept: str
    nodes: list[str]


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A mutation of pods at their creation, and perhaps of one annotation later."""

    pods: Pods
    fragments: dict[str, Fragment]
    choice: Choice | None = None
    by_node: dict[str, str] = {}
    warnings: Warnings = Warnings()
    rewrite: Rewrite | None = None

    def __post_init__(self) -> None:
        if self.choice is not None and self.by_node:
            raise ValueError("choice and byNode are both set: either the pod says what it gets, or its node does")
        if self.by_node:
            expected = sorted(self.by_node.values())
        else:
            default = "" if self.choice is None else self.choice.default
            expected = [] if default is None else [default]
        for name in expected:
            if name not in self.fragments:
                raise ValueError(f"fragments has no {name!r}, which pods get that choose none")

    def is_for(self, pod: Pod, namespace: str) -> bool:
        """Whether a pod is to be changed, wherever it runs.

        Namespace and labels are looked at here too: whoever widens the webhook's selectors gets no privilege by it. A
        pod without containers is left to Kubernetes, which refuses it.
        """
        return (
            self.pods.namespace in {None, namespace}
            and self.pods.labels.items() <= labels_of(pod).items()
            and bool(pod["spec"].get("containers"))
            and (not self.by_node or pod["spec"].get("nodeName") in self.by_node)
        )

    def apply(self, pod: Pod, endpoints: Mapping[str, str]) -> tuple[Pod, list[str]]:
        """The pod as it has to be, and what is doubtful about it.

        Args:
            pod: a pod that this mutation is for.
            endpoints: host and port by what may be chosen.

        Raises:
            RefusalError: it chooses nothing that there is, has something of its own in the way, or is too long.
        """
        check_lengths(pod)
        fragment, values = self._chosen(pod, endpoints)
        spec = _with_volumes(pod["spec"], fragment)
        if fragment.container is None:
            kinds = [kind for kind in ("initContainers", "containers") if spec.get(kind)]
        else:
            kinds = ["containers"]
            _check_container(spec, fragment)
        changed: dict[str, Any] = {
            kind: [
                _with_fragment(container, fragment, values)
                if fragment.container in {None, container["name"]}
                else container
                for container in spec[kind]
            ]
            for kind in kinds
        }
        if fragment.runtime_class_name is not None:
            changed["runtimeClassName"] = fragment.runtime_class_name
        if fragment.pod_security_context:
            changed["securityContext"] = merge(spec.get("securityContext"), fragment.pod_security_context)
        result = {**pod, "spec": {**spec, **changed}}
        if fragment.annotations:
            added = {name: _filled(value, values) for name, value in fragment.annotations.items()}
            result["metadata"] = {**(pod.get("metadata") or {}), "annotations": {**annotations_of(pod), **added}}
        return result, list(self._doubts(pod, fragment, values))

    def rewritten(self, pod: Pod) -> Pod:
        """The pod of an update as it has to be: the same one where nothing is to be changed."""
        rewrite = self.rewrite
        if rewrite is None or pod["spec"].get("nodeName") not in rewrite.nodes:
            return pod
        annotations = annotations_of(pod)
        value = annotations.get(rewrite.annotation, "")
        if value in {"", rewrite.value}:
            return pod
        changed = {**annotations, rewrite.annotation: rewrite.value, rewrite.kept: value}
        return {**pod, "metadata": {**pod["metadata"], "annotations": changed}}

    def _chosen(self, pod: Pod, endpoints: Mapping[str, str]) -> tuple[Fragment, dict[str, str]]:
        if self.by_node:
            return self.fragments[self.by_node[pod["spec"]["nodeName"]]], {}
        if self.choice is None:
            return self.fragments[""], {}
        name = annotations_of(pod).get(self.choice.annotation, self.choice.default or "")
        if name not in self.fragments:
            raise RefusalError(_filled(self.choice.unknown if name else self.choice.unnamed, {"name": name}))
        if name not in endpoints:
            raise RefusalError(self.choice.not_yet, code=503)
        host, _, port = endpoints[name].rpartition(":")
        return self.fragments[name], {"name": name, "host": host, "port": port}

    def _doubts(self, pod: Pod, fragment: Fragment, values: Mapping[str, str]) -> Iterator[str]:
        yield from (text for name, text in self.warnings.annotations.items() if name in annotations_of(pod))
        for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
            name = {"container": container["name"]}
            if fragment.own is not None and fragment.own.left_alone and _sets_it_otherwise(container, fragment, values):
                yield _filled(fragment.own.left_alone, name)
            limits = (container.get("resources") or {}).get("limits") or {}
            for resource, text in self.warnings.more_than_one.items():
                if (count := str(limits.get(resource, "1"))) not in {"0", "1"}:
                    yield _filled(text, {**name, "count": count})


def _check_container(spec: _Entry, fragment: Fragment) -> None:
    names = [container["name"] for container in spec["containers"]]
    if fragment.container not in names:
        values = {"node": str(spec.get("nodeName")), "containers": ", ".join(names)}
        raise RefusalError(_filled(fragment.container_missing, values))


def _with_volumes(spec: _Entry, fragment: Fragment) -> _Entry:
    volumes = fragment.volumes
    if fragment.own is not None:
        names = {volume["name"] for volume in volumes}
        existing = [volume for volume in spec.get("volumes") or () if volume["name"] in names]
        if not all(_says(volume, fragment.own.volume) for volume in existing):
            raise RefusalError(fragment.own.volume_taken)
        volumes = [volume for volume in volumes if volume["name"] not in {entry["name"] for entry in existing}]
    return {**spec, "volumes": merge_by("name", spec.get("volumes"), volumes)} if volumes else spec


def _with_fragment(container: _Entry, fragment: Fragment, values: Mapping[str, str]) -> _Entry:
    env = [{"name": variable.name, "value": _filled(variable.value, values)} for variable in fragment.env]
    if fragment.own is not None:
        existing = _variables(container, fragment)
        paths = {mount["mountPath"]: mount["name"] for mount in fragment.volume_mounts}
        path_taken = any(
            mount["mountPath"].removesuffix("/") in paths
            and mount.get("name") != paths[mount["mountPath"].removesuffix("/")]
            for mount in container.get("volumeMounts") or ()
        )
        if path_taken and not existing:
            raise RefusalError(fragment.own.path_taken)
        if path_taken or _sets_it_otherwise(container, fragment, values):
            return container
        env = [variable for variable in env if variable["name"] not in {entry["name"] for entry in existing}]
    changed: dict[str, Any] = {}
    if env:
        changed["env"] = merge_by("name", container.get("env"), env)
    if fragment.volume_mounts:
        changed["volumeMounts"] = merge_by("mountPath", container.get("volumeMounts"), fragment.volume_mounts)
    if fragment.security_context:
        changed["securityContext"] = merge(container.get("securityContext"), fragment.security_context)
    return {**container, **changed}


def _variables(container: _Entry, fragment: Fragment) -> list[_Entry]:
    ours = {variable.name for variable in fragment.env}
    return [entry for entry in container.get("env") or () if entry["name"] in ours]


def _sets_it_otherwise(container: _Entry, fragment: Fragment, values: Mapping[str, str]) -> bool:
    values_by_name = {variable.name: _filled(variable.value, values) for variable in fragment.env}
    return any(entry.get("value") != values_by_name[entry["name"]] for entry in _variables(container, fragment))


def _says(value: object, part: object) -> bool:
    """Whether a piece of JSON says everything that another one does."""
    match value, part:
        case dict(), dict():
            return all(key in value and _says(value[key], entry) for key, entry in part.items())
        case list(), list():
            return all(any(_says(item, entry) for item in value) for entry in part)
        case _:
            return value == part


def _filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its marks replaced, once: what comes from a pod is not looked at for marks."""
    return _MARK.sub(lambda mark: values.get(mark[1], mark[0]), text) if values else text
