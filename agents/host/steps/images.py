"""The step `images`: Docker's local images into the cluster's containerd, streamed, only missing or different ones."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from agents.host.change.plan import Step
from agents.host.errors import HostError

if TYPE_CHECKING:
    from agents.host.commands import Tools
    from agents.host.context import Context
    from agents.host.look.distribution import Layout

NAME = "images"
_SECONDS = 3600
_MOST_MANIFESTS = 32


@dataclass(frozen=True)
class _Streams:
    stdin: int | IO[bytes] | None
    stdout: int | IO[bytes]
    stderr: IO[bytes]


def plan(context: Context) -> Step:
    """Plan which images to import.

    Raises:
        HostError: Docker lacks an image, or one of the two can't be asked.
    """
    if not context.desired.images:
        return Step(NAME, "none asked for")
    identities = {reference: _in_docker(context.tools, reference) for reference in context.desired.images}
    missing = tuple(
        reference
        for reference, identity in identities.items()
        if identity not in _in_containerd(context.tools, context.layout, reference)
    )
    detail = f"to import: {', '.join(missing)}" if missing else "containerd holds what Docker holds"
    return Step(NAME, detail, images=missing)


def import_image(tools: Tools, layout: Layout, reference: str) -> None:
    """Stream one image from Docker into containerd; nothing is kept on the disk between them.

    Raises:
        HostError: Either side fails, or the image is not there afterwards.
    """
    docker = tools.need("docker", "Install Docker, or take `images` out of the stack's settings.")
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        saving = _started(
            stack, tools, [docker, "save", reference], _Streams(subprocess.DEVNULL, subprocess.PIPE, errors)
        )
        loading = _started(
            stack, tools, [*_ctr(tools, layout), "images", "import", "-"], _Streams(saving.stdout, errors, errors)
        )
        # Only the reader holds the pipe, so that the writer ends with it.
        if saving.stdout:
            saving.stdout.close()
        try:
            codes = [process.wait(timeout=tools.deadline.left(_SECONDS)) for process in (loading, saving)]
        except subprocess.TimeoutExpired as error:
            raise HostError(f"Importing {reference} takes too long.", "Give the run more time (--timeout).") from error
        if any(codes):
            errors.seek(0)
            trouble = errors.read().decode("utf-8", "replace").strip()[-2000:] or "neither side says why"
            raise HostError(
                f"{reference} can't be imported into containerd: {trouble}", "Correct that, then run again."
            )
    if _in_docker(tools, reference) not in _in_containerd(tools, layout, reference):
        raise HostError(
            f"{reference} was imported, but containerd's image of that name is another one.",
            "Write the reference with registry and tag, as `docker images` shows it.",
        )


def full_name(reference: str) -> str:
    """A reference as containerd keeps it: with a registry and a tag."""
    first, slash, _ = reference.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    name = reference if has_registry else f"docker.io/{'' if slash else 'library/'}{reference}"
    tagged = "@" in name or ":" in name.rpartition("/")[2]
    return name if tagged else f"{name}:latest"


def _started(
    stack: contextlib.ExitStack, tools: Tools, command: list[str], streams: _Streams
) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            command,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            env=tools.environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(f"`{command[0]}` can't be started: {error.strerror}.", "Repair it.") from error
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _in_docker(tools: Tools, reference: str) -> str:
    docker = tools.need("docker", "Install Docker, or take `images` out of the stack's settings.")
    finished = tools.run([docker, "image", "inspect", "--format", "{{.Id}}", reference])
    if finished.code:
        raise HostError(f"Docker has no image {reference}: {finished.trouble}", "Build or pull it on this host first.")
    return finished.output.strip()


def _in_containerd(tools: Tools, layout: Layout, reference: str) -> frozenset[str]:
    """Every digest by which containerd knows the image: index, manifests, configurations; none where it lacks it.

    Docker's own identity of an image is its configuration's digest, or with its containerd store the index's.
    """
    ctr = _ctr(tools, layout)
    listing = tools.check([*ctr, "images", "ls", f"name=={full_name(reference)}"], "See that containerd runs.")
    digest = next((part for line in listing.output.splitlines()[1:] for part in line.split() if _is_digest(part)), None)
    return frozenset() if digest is None else frozenset((digest, *_named_in(tools, ctr, digest)))


def _is_digest(text: str) -> bool:
    return text.startswith("sha256:")


def _named_in(tools: Tools, ctr: list[str], digest: str) -> list[str]:
    finished = tools.run([*ctr, "content", "get", digest])
    if finished.code:
        return []
    try:
        manifest = json.loads(finished.output)
        descriptors = [*manifest.get("manifests", []), *([manifest["config"]] if "config" in manifest else [])]
        inner = [descriptor["digest"] for descriptor in manifest.get("manifests", [])]
        digests = [descriptor["digest"] for descriptor in descriptors]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    for manifest_digest in inner[:_MOST_MANIFESTS]:
        digests += _named_in(tools, ctr, manifest_digest)
    return digests


def _ctr(tools: Tools, layout: Layout) -> list[str]:
    program = layout.program(tools, "ctr")
    if program is None:
        where = ", ".join(layout.programs) or "PATH"
        raise HostError(f"The `ctr` of {layout.name} is not found in {where}.", "Install it, then run again.")
    return [program, "--address", str(tools.root.path(layout.socket)), "--namespace", "k8s.io"]
