"""Finds manifests in strings: YAML and JSON, also in base64, as ConfigMaps, ConfigGroups and Jobs carry them."""

import base64
import binascii
import re

import yaml

_MANIFEST = re.compile(
    r"apiVersion|containers|securityContext|privileged|host(?:Network|PID|IPC|Path|Port|Process)|capabilities|procMount"
    r"|sysctls|(?:seccomp|appArmor)Profile|seLinuxOptions|volumeDevices|adminAccess|NVIDIA_VISIBLE|pod-security|\"op\"|\bop:"
)
"""What a text must contain to be worth parsing."""

_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?[^\n]*\n(.*?)\n[ \t]*\1\b", re.DOTALL)
"""What a shell hands to a command, such as `kubectl apply -f -`."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{40,}+={0,2}+\s*+")
_SHORTEST = 8
_LONGEST = 2_000_000
_MOST_NODES = 50_000
"""Values in one text, each counted as often as YAML aliases repeat it; more of them are a bomb, not a manifest."""


class RefusedTextError(Exception):
    """The text is too large to be judged."""


def decoded(text: str) -> str:
    """The text, or what it says in base64."""
    if _BASE64.fullmatch(text):
        try:
            return base64.b64decode(text, validate=False).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return text
    return text


def is_manifest(text: str) -> bool:
    """Whether a text may hold Kubernetes objects or patches of them."""
    return len(text) >= _SHORTEST and _MANIFEST.search(text) is not None


def parse(text: str) -> list[object]:
    """The mappings and lists that a text holds, up to the first that is no YAML: what is before it may be applied.

    Raises:
        RefusedTextError: if there is too much of it.
    """
    if len(text) > _LONGEST:
        raise RefusedTextError
    found: list[object] = []
    try:
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
            if isinstance(document, dict | list):
                _count(document, {})
                found.append(document)
    except RecursionError:
        raise RefusedTextError from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError):
        pass
    return found or [value for body in heredocs(text) for value in parse(body)]


def heredocs(text: str) -> list[str]:
    """The texts that a shell script hands to its commands."""
    return [match.group(2) for match in _HEREDOC.finditer(text)] if "<<" in text else []


def _count(value: object, known: dict[int, int]) -> int:
    """How many values there are with every alias written out."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        # An object inside itself never ends.
        known[id(value)] = _MOST_NODES
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(item, known) for item in items)
    if known[id(value)] > _MOST_NODES:
        raise RefusedTextError
    return known[id(value)]
