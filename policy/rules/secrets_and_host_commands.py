"""No plain secret in an environment or ConfigMap, and no host command that makes static pods."""

import re
from collections.abc import Iterator

from policy.findings import HIDDEN, Told, Violation
from policy.reading import TEXT, Path, dict_of, list_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import Document

_SECRET_NAME = re.compile(
    r"(?i:PASSWORD|PASSWD|PASSPHRASE)$"
    r"|(?:(?:^|[_.-])(?i:PASS|SECRET|TOKEN|CREDENTIALS?)|[a-z](?:Secret|Token|Credentials?))$"
    r"|(?i:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)[_.-]?(?i:KEY)$"
)
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{36}|\bBearer\s+[\w.-]{20,}"
    r"|--password[= ](?![\"']?\$)\S|://[^/\s:@]+:(?!\$)[^/\s@]+@"
)
_NO_SECRET = re.compile(r"\$[({]?\w+[)}]?|true|false|\d{1,5}", re.IGNORECASE)
"""A reference to another variable, a switch or a count."""
_STATIC_PODS = re.compile(
    r"/etc/kubernetes/manifests|/etc/kubelet\.d|staticPodPath|pod-manifest-path|staticPodURL|manifest-url=|/pod-manifests\b"
    r"|\bcd\s+/etc/kubernetes\b|\bcd\s+/var/lib/rancher/\w+/(?:server|agent)\b"
    r"|/(?:k3s|rke2)/server/manifests"
)
_COMMANDS = ("Command", "CopyToRemote", "CopyFile")
_COMMAND_TEXTS = ("create", "update", "delete", "stdin", "remotePath")


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    for pod in document.pods:
        for path, container in pod.containers():
            for index, variable in enumerate(list_of(container.get("env"))):
                entry = dict_of(variable)
                yield from _named(
                    (*path, "env", index, "value"), entry.get("name"), entry.get("value"), "a Secret (secretKeyRef)"
                )
    if document.is_kind("ConfigMap"):
        for part in ("data", "binaryData"):
            for key, value in dict_of(document.root.get(part)).items():
                path = (*document.path, part, key)
                yield from _named(path, key, value, "a Secret")
                yield from _in_text(path, value)
    if document.is_kind(*_COMMANDS) and "metadata" not in document.root:
        yield from _command(document)


def _command(document: Document) -> Iterator[Violation]:
    for key, value in dict_of(document.root.get("environment")).items():
        path = (*document.path, "environment", key)
        yield from _named(path, key, value, "stdin")
        yield from _static_pods(path, value)
    for key in _COMMAND_TEXTS:
        value, path = document.root.get(key), (*document.path, key)
        if not isinstance(value, str):
            continue
        if key != "stdin":
            yield from _in_text(path, value)
        yield from _static_pods(path, value)


def _static_pods(path: Path, value: object) -> Iterator[Violation]:
    if isinstance(value, str) and (found := _STATIC_PODS.search(value)):
        yield Violation(
            (*path, TEXT),
            Told(found.group()),
            "the kubelet or k3s runs whatever lies there, past the API server's admission",
            "register the workload in the program",
        )


def _named(path: Path, name: object, value: object, better: str) -> Iterator[Violation]:
    secret = isinstance(name, str) and isinstance(value, str) and _SECRET_NAME.search(name)
    if secret and value and not _NO_SECRET.fullmatch(str(value)):
        yield Violation(path, Told(HIDDEN), remedy=f"hand it over through {better}")


def _in_text(path: Path, value: object) -> Iterator[Violation]:
    if isinstance(value, str) and _SECRET_TEXT.search(value):
        yield Violation((*path, TEXT), Told(HIDDEN))


RULE = Rule(
    name="secrets-and-host-commands",
    title="No secret stands in an environment, a ConfigMap or a command line, and no host command makes static pods.",
    why="everybody who may read the object or the process list reads the secret",
    remedy="hand it over through a Secret, or through a command's stdin",
    reads=frozenset(
        {
            "Command:create",
            "Command:update",
            "Command:delete",
            "CopyToRemote:remotePath",
            "CopyFile:remotePath",
        }
    ),
    check=_check,
)
