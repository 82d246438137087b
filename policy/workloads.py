"""One walker by shape: everything in a resource that is, or becomes, a Kubernetes object.

Not by type token: a pod hides in `*List` and `*Patch` kinds, templates at any depth of custom resources, strings, and
patches. Every key of every object is indexed once; rules look keys up.
"""

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path as File
from typing import NamedTuple

from policy.bridged import is_bridged, kubernetes_kind, kubernetes_spelling
from policy.cel import NotALiteralError, read_choices
from policy.chart_values import written_out
from policy.own_exceptions import PROGRAM_FOLDER
from policy.reading import MAX_TEXTS, TEXT, Elsewhere, Hole, Path, dict_of, list_of, plain, text_of
from policy.texts import LONGEST, RefusedTextError, decoded, is_manifest, parse

CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_CONTAINER_LISTS = frozenset(CONTAINER_LISTS)
_VALUES = frozenset({"valuesContent", "valueYamlFiles", "values"})
"""Keys of texts that are a chart's values, whatever stands in them: of k3s, Pulumi, Argo CD and Terraform."""
COMMANDS = ("Command", "CopyToRemote", "CopyFile")
"""What runs on hosts, or brings files there."""
_SCHEMAS = frozenset({"openAPIV3Schema", "validation"})
"""Where a CustomResourceDefinition describes fields instead of setting them."""
_DOTTED = frozenset(
    {
        *("privileged", "hostnetwork", "hostpid", "hostipc", "hostpath", "hostport", "procmount", "nodename"),
        "nvidia_visible_devices",
    }
)
"""Fields that count as set where a dotted name ends in them; a file's name may end in other words."""
_SPARK_HOST_PATH = re.compile(r"^spark\..*\.volumes\.hostPath\..*\.options\.path$")
"""By such a name Spark mounts a folder of the node."""
_SWITCHED = re.compile(r"^(?:use|enable)(?=[A-Z])")
"""What names of switches in charts begin with, such as `useHostNetwork`."""
_COMPOSE = frozenset({"name", "version", "services", "networks", "volumes", "configs", "secrets", "include", "models"})
"""The keys of a compose file; Docker takes no others, but for those that begin with `x-`."""
MUTATING = ("MutatingAdmissionPolicy", "MutatingPolicy", "NamespacedMutatingPolicy")
"""Kubernetes' own, and Kyverno's with the same expressions."""
_WITH_CODE = ("ValidatingAdmissionPolicy", *MUTATING)
_CODE = ("expression", "messageExpression")
"""Strings of these kinds that are CEL, not manifests."""


class Field(NamedTuple):
    """One key with its value.

    Attributes:
        path: from the resource's inputs; its last step is the key.
        value: plain.
        holder: the mapping that has the key.
    """

    path: Path
    value: object
    holder: dict[str, object]


class Pod(NamedTuple):
    """A pod's spec, wherever it stands.

    Attributes:
        path: of the spec.
        spec: the mapping with `containers`.
        metadata: of the pod or template; empty where there is none.
    """

    path: Path
    spec: dict[str, object]
    metadata: dict[str, object]

    def containers(self) -> Iterator[tuple[Path, dict[str, object]]]:
        """Every container of every list, with its path."""
        for key in CONTAINER_LISTS:
            for index, container in enumerate(list_of(self.spec.get(key))):
                if isinstance(container, dict):
                    yield (*self.path, key, index), container


@dataclass
class Document:
    """One Kubernetes object, Helm values, or a piece of either.

    Attributes:
        kinds: what the type token and the object itself call it; they may differ.
        path: where it stands in the resource's inputs.
        root: the object.
        outer: the object that writes this one, for what an admission policy adds.
        keys: every key in lower case, with its places.
        pods: pod specs.
        holes: places of values that can't be read.
        texts: strings that may hold manifests.
        strings: what is judged as text: every string, decoded, without the manifests that are documents themselves.
    """

    kinds: frozenset[str]
    path: Path
    root: dict[str, object]
    outer: "Document | None" = None
    keys: dict[str, list[Field]] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    holes: list[tuple[Path, Hole]] = field(default_factory=list)
    texts: list[tuple[Path, str]] = field(default_factory=list)
    strings: dict[Path, str] = field(default_factory=dict)
    inner: list[tuple[Path, dict[str, object]]] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        """All strings, a line or more each: what none of them holds is looked for once."""
        return "\n".join(self.strings.values())

    @property
    def metadata(self) -> dict[str, object]:
        """The object's metadata."""
        return dict_of(self.root.get("metadata"))

    @property
    def name(self) -> str:
        """The object's name; a Helm release has it at its root."""
        return text_of(self.metadata.get("name")) or text_of(self.root.get("name"))

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return text_of(self.metadata.get("namespace")) or text_of(self.root.get("namespace"))

    def is_kind(self, *kinds: str) -> bool:
        """Whether token or object call it one of these: for a rule that forbids."""
        return not self.kinds.isdisjoint(kinds)

    def is_only(self, *kinds: str) -> bool:
        """Whether token and object agree on one of these: for a rule that allows."""
        return bool(self.kinds) and self.kinds <= frozenset(kinds)

    def fields(self, *keys: str) -> Iterator[Field]:
        """Every place of these keys, in any case."""
        for key in keys:
            yield from self.keys.get(key.casefold(), ())


_last = threading.local()
"""The engine's last resource: the SDK hands it to every policy anew."""


def documents(token: str, props: object) -> list[Document]:
    """Everything in a resource that rules judge.

    Args:
        token: the resource's type.
        props: its inputs, in any form.
    """
    root = plain(props)
    if getattr(_last, "resource", None) != (token, root):
        _last.documents = _documents(token, root)
        _last.resource = (token, root)
    expanded: list[Document] = _last.documents
    return expanded


def has_unknown(token: str, props: object) -> bool:
    """Whether anything in a resource is not known before the update."""
    return any(hole is Hole.UNKNOWN for document in documents(token, props) for _, hole in document.holes)


def _documents(token: str, root: object) -> list[Document]:
    package, kind = token.partition(":")[0], token.rpartition(":")[2]
    if not isinstance(root, dict) or package == "pulumi":
        # A provider's kubeconfig, a stack: nothing that becomes an object.
        return []
    if is_bridged(token):
        root, kind = kubernetes_spelling(root), kubernetes_kind(kind)
    elif package not in {"kubernetes", "command"} and not _is_object(root):
        # Another provider's resource, such as a cloud's own containers: only Kubernetes objects in it are judged.
        return [
            document
            for document in _expand(_walked(Document(frozenset({kind}), (), root)), 0)
            if _is_object(document.root)
        ]
    expanded = [document for top in _unlisted((), root, kind.removesuffix("Patch")) for document in _expand(top, 0)]
    return expanded + [added for document in expanded if document.is_kind(*MUTATING) for added in _mutations(document)]


def _is_object(root: dict[str, object]) -> bool:
    return bool(text_of(root.get("kind")) and text_of(root.get("apiVersion")))


def is_compose(value: object) -> bool:
    """Whether this is a compose file: containers of one host, which Kubernetes does not read."""
    services = dict_of(dict_of(value).get("services"))
    foreign = {key for key in dict_of(value) if key not in _COMPOSE and not key.startswith("x-")}
    return not foreign and any({"image", "build"} & dict_of(service).keys() for service in services.values())


def _unlisted(path: Path, root: dict[str, object], kind: str) -> Iterator[Document]:
    """A document, or those of a `*List`."""
    own = text_of(root.get("kind"))
    if isinstance(items := root.get("items"), list) and (kind.endswith("List") or own.endswith("List")):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield from _unlisted((*path, "items", index), item, kind.removesuffix("List"))
        root = {key: value for key, value in root.items() if key != "items"} | {
            "items": [item for item in items if isinstance(item, Hole)]
        }
    yield _document(path, root, kind)


def _document(path: Path, root: dict[str, object], kind: str) -> Document:
    kinds = frozenset(name for name in (kind, text_of(root.get("kind"))) if name)
    return _walked(Document(kinds, path, root))


def _expand(document: Document, level: int) -> Iterator[Document]:
    yield document
    for path, inner in document.inner:
        yield from _unlisted(path, inner, "")
    yield from _from_texts(document, level)


def _from_texts(document: Document, level: int) -> Iterator[Document]:
    if level >= MAX_TEXTS:
        document.holes += [((*path, TEXT), Hole.TOO_DEEP) for path, _ in document.texts]
        return
    for path, text in document.texts:
        try:
            values, document.strings[path] = parse(text)
        except RefusedTextError:
            document.holes.append(((*path, TEXT), Hole.TOO_LARGE))
            continue
        on_a_host = document.is_kind(*COMMANDS) and "metadata" not in document.root
        for index, fragment in enumerate(map(plain, values)):
            if is_compose(fragment) and not on_a_host and _key(path) not in _VALUES:
                continue
            root = fragment if isinstance(fragment, dict) else {"items": fragment}
            step: Path = (*path, TEXT) if index == 0 else (*path, TEXT, index)
            for inner in _unlisted(step, root, "List" if "items" in root else ""):
                yield from _expand(inner, level + 1)


def _mutations(document: Document) -> Iterator[Document]:
    """What an admission policy adds to objects, as far as its expression writes it out."""
    for item in document.fields("expression"):
        try:
            values = read_choices(text_of(item.value))
        except NotALiteralError:
            continue
        written = [content for value in values for content in (value if isinstance(value, list) else [value])]
        for index, content in enumerate(written):
            if isinstance(content, dict):
                yield _walked(Document(frozenset(), (*item.path, TEXT, index), content, outer=document))


def _walked(document: Document) -> Document:
    schemas = _SCHEMAS if document.is_only("CustomResourceDefinition") else frozenset()
    code = _CODE if document.is_only(*_WITH_CODE) else ()
    of_k3s = document.is_kind("HelmChart")
    todo: list[tuple[Path, str, object, dict[str, object]]] = [(document.path, _key(document.path), document.root, {})]
    while todo:
        path, key, node, parent = todo.pop()
        match node:
            case str():
                document.strings[path] = text = decoded(node)
                if path[-1] not in code and (is_manifest(text) or key in _VALUES):
                    document.texts.append((path, text))
            case dict():
                _index(document, path, node, parent)
                todo += [
                    (below := (*path, name), name, written_out(below, value, of_k3s=of_k3s), node)
                    for name, value in node.items()
                    if name not in schemas
                ]
            case list():
                todo += [((*path, index), key, value, {}) for index, value in enumerate(node)]
            case Hole():
                document.holes.append((path, node))
            case Elsewhere() if key in _VALUES:
                # Helm reads it; other files go to hosts, or are nobody's manifests.
                content = _file_of_program(node.file)
                todo.append((path, key, Hole.ELSEWHERE if content is None else content, {}))
            case _:
                pass
    return document


def _file_of_program(name: str) -> str | None:
    """What a file says; nothing for one that is not in the program's folder, whoever reads it there."""
    folder = os.environ.get(PROGRAM_FOLDER)
    if not name or not folder:
        return None
    root = File(folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root) or not path.is_file() or path.stat().st_size > LONGEST:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _index(document: Document, path: Path, node: dict[str, object], parent: dict[str, object]) -> None:
    for key, value in node.items():
        document.keys.setdefault(_field_name(key), []).append(Field((*path, key), value, node))
    if any(isinstance(node[key], (list, Hole)) for key in _CONTAINER_LISTS.intersection(node)):
        metadata = dict_of(node.get("metadata") or parent.get("metadata"))
        document.pods.append(Pod(path, node, metadata))
    if path != document.path and "metadata" in node and text_of(node.get("kind")) and text_of(node.get("apiVersion")):
        document.inner.append((path, node))
    if isinstance(node.get("op"), str) and text_of(node.get("path")).startswith("/"):
        _index_patch(document, path, node)


def _key(path: Path) -> str:
    return next((step for step in reversed(path) if isinstance(step, str)), "")


@lru_cache(maxsize=4096)
def _field_name(key: str) -> str:
    """The field that a key sets: itself, the end of a dotted name, what a chart's switch or Kyverno's `+(key)` adds."""
    if key.startswith("+(") and key.endswith(")"):
        key = key[2:-1]
    if _SPARK_HOST_PATH.search(key):
        return "hostpath"
    end = _SWITCHED.sub("", "" if "/" in key else key.rpartition(".")[2]).casefold()
    return end if end in _DOTTED else key.casefold()


def _index_patch(document: Document, path: Path, node: dict[str, object]) -> None:
    """A JSON patch (RFC 6902) sets the field that its path names: indexed as if it stood there."""
    steps = [step.replace("~1", "/").replace("~0", "~") for step in text_of(node["path"]).split("/")[1:]]
    target: Path = (*path, *(int(step) if step.isascii() and step.isdigit() else step for step in steps if step != "-"))
    key = _key(target)
    appended = isinstance(target[-1], int) or steps[-1] == "-"
    value = [node.get("value")] if appended else node.get("value")
    document.keys.setdefault(key.casefold(), []).append(Field(target, value, node))
    holder = target[-2] if len(target) > len(path) + 1 and isinstance(target[-1], str) else None
    if isinstance(holder, str) and "{{" not in holder:
        # Some rules ask for the object around it, such as a hostPath or a roleRef; Kyverno may compute an index.
        document.keys.setdefault(holder.casefold(), []).append(Field(target[:-1], {target[-1]: value}, node))
