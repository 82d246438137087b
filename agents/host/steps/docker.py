"""The step `docker`: the `nvidia` runtime in Docker's `daemon.json`, merged into what stands there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict

from agents.host.change.plan import Step, change_of
from agents.host.errors import HostError
from agents.host.look import toolkit, units
from agents.host.look.runtime import DOCKER_CONFIG, DOCKER_ENCODING
from agents.host.steps import ctk, service

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.context import Context

NAME = "docker"
_DEFAULT = "default-runtime"
_RUNTIMES = "runtimes"
_Object = Dict[str, Any]


def plan(context: Context) -> Step:
    """Plan Docker's configuration.

    Raises:
        HostError: `daemon.json` is broken, Docker is missing, or its own validation refuses the result.
    """
    docker = context.desired.docker
    if not docker.configure:
        return Step(NAME, "not asked for")
    root, tools = context.tools.root, context.tools
    _refuse_without_service(tools)
    toolkit.refuse_two_owners(root)
    units.refuse_other_configuration(root, "docker", "dockerd", ("--config-file",), DOCKER_CONFIG)
    before = root.read_bytes(DOCKER_CONFIG)
    configuration = _with_former_default(context, _parsed(before))
    owed = context.owes_restart("docker")
    if "nvidia" not in configuration.get(_RUNTIMES, {}) or (
        docker.default_runtime and configuration.get(_DEFAULT) != "nvidia"
    ):
        staged = context.staging / "daemon.json"
        if before is not None:
            staged.write_text(json.dumps(configuration), encoding="utf-8")
        made = ctk.docker_runtime(tools, staged, toolkit.runtime_path(root), default=docker.default_runtime)
        # The tool has replaced keys before (NVIDIA/nvidia-container-toolkit#2049): only what was asked for is taken.
        configuration = _merged(configuration, _parsed(made), default=docker.default_runtime)
    content = before if before is not None and configuration == _parsed(before) else _text(configuration)
    changes = change_of(root, DOCKER_CONFIG, before, content)
    if changes:
        _refuse_keys_twice(before or b"{}")
        _validate(context, content)
    restart = service.docker() if changes or owed else None
    return Step(NAME, "the nvidia runtime" + (" as default" if docker.default_runtime else ""), changes, restart)


def without_ours(original: bytes | None, written: bytes | None, current: bytes, *, every: bool = False) -> bytes | None:
    """`daemon.json` without what this agent added and nobody has changed since; None where nothing is left.

    Args:
        original: What was there.
        written: What this agent wrote, None where that is not known.
        current: What is there.
        every: Whether its values go also where somebody has changed them since.

    Raises:
        HostError: One of them is broken, or can't be written again.
    """
    former, now = _parsed(original), _parsed(current)
    ours = _parsed(written) if written is not None else _assumed(former, now)
    left = _reverted(former, ours, now, every=every)
    runtime = now.get(_RUNTIMES, {}).get("nvidia")
    if left.get(_DEFAULT) == "nvidia" and runtime is not None:
        # Somebody made it the default: Docker does not start without it.
        left[_RUNTIMES] = dict(left.get(_RUNTIMES, {}), nvidia=runtime)
    put_back = left.get(_DEFAULT) if left.get(_DEFAULT) != now.get(_DEFAULT) else None
    if isinstance(put_back, str) and put_back in former.get(_RUNTIMES, {}) and put_back not in left.get(_RUNTIMES, {}):
        # Somebody has taken that runtime away since: Docker does not start with a default that is not there.
        del left[_DEFAULT]
    if left == now and left != former:
        return current
    _refuse_keys_twice(current)
    return original if left == former else _text(left)


def needed_by_others(original: bytes | None, left: bytes | None) -> bool:
    """Whether the runtime that this agent added stays, since somebody else made it the default.

    Raises:
        HostError: One of them is broken.
    """
    former, now = _parsed(original), _parsed(left)
    added = "nvidia" in now.get(_RUNTIMES, {}) and "nvidia" not in former.get(_RUNTIMES, {})
    return added and now.get(_DEFAULT) == "nvidia"


def _refuse_without_service(tools: Tools) -> None:
    """Without the service, nobody would read the file, and neither putting it into force nor back could end."""
    if service.has_docker(tools):
        return
    program = tools.find("dockerd") or tools.find("docker")
    raise HostError(
        f"This host has {program}, but no docker.service, which would read {DOCKER_CONFIG}, or it is masked: Docker's "
        "snap and Podman's stand-in for Docker have none."
        if program
        else "There is no Docker on this host: neither a docker.service nor a `docker`.",
        "Install Docker Engine (the package docker-ce or docker.io), or switch docker.configure off; "
        "nothing was changed.",
    )


def _assumed(former: _Object, now: _Object) -> _Object:
    """What this agent made of a file, as far as the names tell."""
    ours = dict(former)
    if "nvidia" in now.get(_RUNTIMES, {}):
        ours[_RUNTIMES] = dict(former.get(_RUNTIMES, {}), nvidia=now[_RUNTIMES]["nvidia"])
    return dict(ours, **{_DEFAULT: "nvidia"}) if now.get(_DEFAULT) == "nvidia" else ours


def _reverted(former: _Object, ours: _Object, now: _Object, *, every: bool) -> _Object:
    """An object with every value that is still ours as it was; a runtime is one value, since a part of it is none."""
    left = dict(now)
    for name, value in ours.items():
        if former.get(name) == value:
            continue
        current = now.get(name)
        if current != value and name == _RUNTIMES and isinstance(current, dict):
            left[name] = _reverted(former.get(name, {}), value, current, every=every)
        elif current != value and not every:
            continue
        elif name in former:
            left[name] = former[name]
        else:
            left.pop(name, None)
        if left.get(name) == {} and name not in former:
            del left[name]
    return left


def _merged(mine: dict[str, Any], made: dict[str, Any], *, default: bool) -> dict[str, Any]:
    merged = dict(mine)
    runtimes = dict(merged.get(_RUNTIMES, {}))
    runtimes["nvidia"] = made.get(_RUNTIMES, {}).get("nvidia")
    if not isinstance(runtimes["nvidia"], dict):
        raise HostError("`nvidia-ctk` added no nvidia runtime to daemon.json.", "Install a newer toolkit.")
    merged[_RUNTIMES] = runtimes
    if default:
        merged[_DEFAULT] = "nvidia"
    return merged


def _with_former_default(context: Context, data: dict[str, Any]) -> dict[str, Any]:
    """Take back a default runtime that an earlier run set and that is no longer asked for."""
    original = context.journal.originals.get(DOCKER_CONFIG)
    if context.desired.docker.default_runtime or original is None or data.get(_DEFAULT) != "nvidia":
        return data
    written = context.journal.written_to(original)
    if written is not None and _parsed(written).get(_DEFAULT) != "nvidia":
        return data  # Somebody else's choice.
    former = _parsed(context.journal.content_of(original)).get(_DEFAULT)
    rest = {name: value for name, value in data.items() if name != _DEFAULT}
    return rest if former is None else dict(rest, **{_DEFAULT: former})


def _parsed(content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {}
    try:
        data = json.loads(content.decode(DOCKER_ENCODING))
    except (ValueError, RecursionError) as error:
        raise HostError(
            f"{DOCKER_CONFIG} is not JSON: {error}.", "Repair it, or remove it if it is empty; nothing was changed."
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get(_RUNTIMES, {}), dict):
        raise HostError(f"{DOCKER_CONFIG} does not hold an object with `runtimes`.", "Repair it; nothing was changed.")
    return data


def _refuse_keys_twice(content: bytes) -> None:
    """Refuse a key that is there twice and can't be written again: Docker joins its values, a parser takes the last."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        twice.extend(name for name in names if names.count(name) > 1)
        return dict(items)

    json.loads(content.decode(DOCKER_ENCODING), object_pairs_hook=pairs)
    if twice:
        raise HostError(
            f"{DOCKER_CONFIG} has the key {twice[0]!r} twice. Docker joins what both say; of one of them, nothing "
            "would be left.",
            "Write both under one key; nothing was changed.",
        )


def _text(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=4) + "\n").encode()


def _validate(context: Context, content: bytes) -> None:
    dockerd = context.tools.find("dockerd")
    if dockerd is None:
        return
    candidate = context.staging / "candidate-daemon.json"
    candidate.write_bytes(content)
    finished = context.tools.run([dockerd, "--validate", "--config-file", str(candidate)])
    # Before 23.0 there is no --validate.
    if finished.code and "unknown flag" not in finished.trouble:
        raise HostError(
            f"Docker refuses the new {DOCKER_CONFIG}: {finished.trouble}", "Correct what it names; nothing was changed."
        )
