"""No plain secret in an environment or ConfigMap, and no host command that makes static pods."""

import re
from collections.abc import Iterator

from policy.findings import HIDDEN, Told, Violation, told_path
from policy.reading import TEXT, Path, dict_of, list_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import COMMANDS, Document

_SECRET_NAME = re.compile(
    r"(?i:PASSWORD|PASSWD|PASSPHRASE)$"
    r"|(?:(?:^|[_.-])(?i:PASS|SECRET|TOKEN|CREDENTIALS?)|[a-z](?:Secret|Token|Credentials?))$"
    r"|(?i:API|ACCESS|PRIVATE|SECRET|SIGNING|ENCRYPTION)[_.-]?(?i:KEY)$"
)
_MARK_WORDS = """
    AKIA ASIA AIza ya29. Key= ccess_key CCESS_KEY ghp_ gho_ ghu_ ghs_ ghr_ _pat_ glpat- xox _live_ npm_ hf_ nvapi-
    sk-ant- sk-proj- hvs. pul- eyJ AGE-SECRET-KEY- earer asic :// --password --token --api-key --secret-key
"""
_MARKS = ("PRIVATE KEY", *_MARK_WORDS.split())
"""One of them stands in every secret that the pattern knows: most objects have none, and cost no search."""
_SECRET_TEXT = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|(?i:aws_secret_access_key)[\"' ]{0,3}[=:][\"' ]{0,3}[A-Za-z0-9/+]{40}\b"
    r"|\bAIza[\w-]{35}|\bya29\.[\w-]{20}|\b(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{40}"
    r"|\bgh[pousr]_\w{36}|\bgithub_pat_\w{22}|\bglpat-[\w-]{20}|\bxox[abeprs]-[\w-]{10}|\b[sr]k_live_\w{16}"
    r"|\bnpm_\w{36}|\bhf_[A-Za-z]{30}|\bnvapi-[\w-]{40}|\bsk-(?:ant|proj)-[\w-]{20}|\bhvs\.[\w-]{24}"
    r"|\bdckr_pat_[\w-]{20}|\bAGE-SECRET-KEY-1[0-9A-Z]{50}|\bpul-[0-9a-f]{40}\b"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}|\b[Bb]earer\s+(?=[\w.~+/-]{0,200}\d)[\w.~+/-]{20}"
    r"|\b[Bb]asic\s+(?=[A-Za-z0-9+/]{0,200}[0-9=])[A-Za-z0-9+/]{16,}={0,2}(?![\w/+])"
    r"|--(?:password|token|api-key|secret-key)[= ](?![\"']?(?:[$<{/.\"'-]|true\b|false\b))[^\s,]"
    r"|://[^/\s:@?#\"'<>]{0,80}:(?![$<{%*])[^/\s@\"'<>]{1,200}@"
)
_NO_SECRET = re.compile(
    r"|true|false|none|null|\d{1,5}|[\"']?(?:\$[({]?\w+[)}]?|\{\{.*\}\}|<[^<>]*>)[\"']?|[\Wx]+"
    r"|\.{0,2}/.*|\s*[\[{].*|[a-z][a-z0-9+.-]*:(?!//[^/\s]*:[^/\s]*@).*",
    re.IGNORECASE | re.DOTALL,
)
"""A reference to another variable or to a store of secrets, a path, an address, a switch, a count, or a structure."""
_OBJECT_NAME = re.compile(r"[a-z]+(?:[.-][a-z0-9]+)+")
_NAMES_OBJECT = re.compile(r"(?i:SECRET|CREDENTIALS?)(?:[_-]?(?i:NAME|REF))?$")
"""Variables that may name a Secret: an object's name is no secret."""
_NOT_TEXT = frozenset({"stdin", "connection", "triggers", "repositoryOpts"})
"""Inputs that are handed over in secret, or keep what is: their values are in no object and on no command line."""
_CHARTS = ("Release", "Chart")
_STATIC_PODS = re.compile(
    r"/etc/kubernetes/manifests|/etc/kubelet\.d|staticPodPath|pod-manifest-path|staticPodURL|manifest-url=|/pod-manifests\b"
    r"|\bcd\s+/etc/kubernetes\b|\bcd\s+/var/lib/rancher/\w+/(?:server|agent)\b"
    r"|/(?:k3s|rke2)/server/manifests"
)
_STATIC_WHY = "the kubelet or k3s runs whatever lies there, past the API server's admission"
_STATIC_REMEDY = "register the workload in the program"


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
                yield from _named((*document.path, part, key), key, value, "a Secret")
    yield from _texts(document)
    for field in document.fields("staticPodPath", "staticPodURL"):
        if field.value:
            yield Violation(field.path, told_path(field.value), _STATIC_WHY, _STATIC_REMEDY)
    if document.is_kind(*COMMANDS) and "metadata" not in document.root:
        yield from _command(document)


def _texts(document: Document) -> Iterator[Violation]:
    """Secrets by what they look like, wherever they stand; a Secret's own and a chart's values become Secrets."""
    if document.is_kind("Secret", "CustomResourceDefinition") or document.is_only(*_CHARTS):
        return
    if not any(mark in document.text for mark in _MARKS):
        return
    for path, text in document.strings.items():
        if _NOT_TEXT.isdisjoint(path) and any(mark in text for mark in _MARKS) and _SECRET_TEXT.search(text):
            yield Violation((*path, TEXT), Told(HIDDEN))


def _command(document: Document) -> Iterator[Violation]:
    for key, value in dict_of(document.root.get("environment")).items():
        yield from _named((*document.path, "environment", key), key, value, "stdin")
    for path, text in document.strings.items():
        if match := _STATIC_PODS.search(text):
            yield Violation((*path, TEXT), Told(match.group()), _STATIC_WHY, _STATIC_REMEDY)


def _named(path: Path, name: object, value: object, better: str) -> Iterator[Violation]:
    if not isinstance(name, str) or not isinstance(value, str) or not _SECRET_NAME.search(name):
        return
    names_object = _NAMES_OBJECT.search(name) and _OBJECT_NAME.fullmatch(value)
    if not names_object and not _NO_SECRET.fullmatch(value) and not _SECRET_TEXT.search(value):
        yield Violation(path, Told(HIDDEN), remedy=f"hand it over through {better}")


RULE = Rule(
    name="secrets-and-host-commands",
    title="No secret stands in an environment, a ConfigMap or a command line, and no host command makes static pods.",
    why="everybody who may read the object or the process list reads the secret",
    remedy="hand it over through a Secret, or through a command's stdin",
    reads=frozenset(
        {
            "CopyToRemote:remotePath",
            "CopyFile:remotePath",
        }
    ),
    check=_check,
    programs=frozenset({"Command:create", "Command:update", "Command:delete"}),
)
