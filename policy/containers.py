"""Containers that a command or a compose file starts on a host, past Kubernetes: what they get of that host."""

import re
import shlex
from collections.abc import Callable, Iterator

from pod_checks.table import CAPABILITY_NAMES
from policy.findings import told_path
from policy.reading import Path, dict_of, list_of, text_of

_ENGINES = re.compile(r"\b(?:docker|podman|nerdctl|ctr)\b")
_STARTS = frozenset({"run", "create", "exec", "install", "update"})
_CONTINUED = re.compile(r"\\\r?\n")
_SUBSTITUTION = re.compile(r"\$\(([^()`]*)\)|`([^`]*)`")
_UNREAD = re.compile(r"`|\$\(")
_DEEPEST = 20
_COMMAND_END = re.compile(r"[\n;|&]+")
_VOLUME = re.compile(r"-[itdPq]{0,5}v=?(.*)", re.DOTALL)
_NAMESPACES = frozenset({"--pid", "--ipc", "--net", "--network", "--uts", "--userns", "--cgroupns"})
_ALWAYS = frozenset({"--device", "--device-cgroup-rule", "--volumes-from", "--grant-all-permissions", "--net-host"})
_UNCONFINED = re.compile(r"unconfined|label[:=]disable|no-new-privileges[:=]false")
_FALSE = frozenset({"false", "0", "f"})
_DEVICE_OPTION = re.compile(r"(?:^|,)(?:volume-opt=)?device=/")


def host_power_of_command(text: str) -> str | None:
    """The first option of a container command in a script that gives the container something of the host."""
    if not _ENGINES.search(text):
        return None
    for command in _commands(_CONTINUED.sub(" ", text)):
        words = _words(command)
        if not _STARTS.isdisjoint(words):
            for index, word in enumerate(words):
                if _takes(word, words[index + 1] if index + 1 < len(words) else ""):
                    return word.partition("=")[0] if word.startswith("--") else word[:2]
    return None


def _commands(text: str) -> list[str]:
    """Each command of a script. Of one in another `$` stays there, as before a variable: nobody knows its value."""
    inner: list[str] = []

    def taken_out(match: re.Match[str]) -> str:
        inner.append(match[1] or match[2] or "")
        return "$"

    for _ in range(_DEEPEST):
        text, count = _SUBSTITUTION.subn(taken_out, text)
        if not count:
            break
    return [part for piece in (text, *inner) for part in _COMMAND_END.split(_UNREAD.sub("$\n", piece))]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [word.strip("\"'") for word in command.split()]


def _takes(word: str, following: str) -> bool:
    if short := _VOLUME.fullmatch(word):
        return _is_of_host(short.group(1) or following)
    flag, has_value, value = word.partition("=")
    if flag == "--privileged":
        return not has_value or value.casefold() not in _FALSE
    judge = _OPTIONS.get(flag)
    return flag in _ALWAYS or (judge is not None and judge(value if has_value else following))


def _is_of_host(volume: str) -> bool:
    """Whether the source of `source:target` is a path, or can't be known; `/target` alone is a volume of its own."""
    source, colon, _ = volume.partition(":")
    return source.startswith("$") or (bool(colon) and source.startswith(("/", ".", "~")))


def _binds(mount: str) -> bool:
    fields = dict(part.partition("=")[::2] for part in mount.split(","))
    source = fields.get("source") or fields.get("src") or ""
    return fields.get("type") == "bind" or source.startswith(("/", ".", "~", "$")) or bool(_DEVICE_OPTION.search(mount))


def _is_default(capability: object) -> bool:
    return text_of(capability).upper().removeprefix("CAP_") in CAPABILITY_NAMES


_OPTIONS: dict[str, Callable[[str], bool]] = {
    "--volume": _is_of_host,
    "--mount": _binds,
    "--cap-add": lambda value: not all(map(_is_default, value.split(","))),
    "--security-opt": lambda value: _UNCONFINED.search(value) is not None,
    "--opt": lambda value: _DEVICE_OPTION.search(value) is not None,
    "-o": lambda value: _DEVICE_OPTION.search(value) is not None,
    **dict.fromkeys(_NAMESPACES, lambda value: value == "host"),
}
"""Options by whether their value takes something of the host."""
_FIELDS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("pid", "ipc", "network_mode", "uts", "userns_mode", "cgroup"), lambda value: value == "host"),
    **dict.fromkeys(("devices", "device_cgroup_rules", "volumes_from"), bool),
    "cap_add": lambda value: not all(map(_is_default, list_of(value))),
    "security_opt": lambda value: any(_UNCONFINED.search(text_of(option)) for option in list_of(value)),
    "volumes": lambda value: any(map(_is_bind, list_of(value))),
}


def host_power_of_compose(root: dict[str, object]) -> Iterator[tuple[Path, object]]:
    """Fields of a compose file that give a container something of the host; privilege itself is found elsewhere."""
    for name, service in dict_of(root.get("services")).items():
        for key, value in dict_of(service).items():
            if key in _FIELDS and _FIELDS[key](value):
                yield ("services", name, key), value
    for name, volume in dict_of(root.get("volumes")).items():
        device = dict_of(dict_of(volume).get("driver_opts")).get("device")
        if text_of(device).startswith("/"):
            yield ("volumes", name, "driver_opts", "device"), told_path(device)


def _is_bind(volume: object) -> bool:
    return _is_of_host(text_of(volume)) or dict_of(volume).get("type") == "bind"
