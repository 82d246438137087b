"""`kai-anywhere bundle`."""

import io
import json
import os
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, Field

from cluster.access.client import Cluster
from cluster.errors import ClusterError
from config.stack import StackSettings
from manifests import every_object, reservation
from operations.bundle.clean import Cleaner
from operations.bundle.collect import LOG_BYTES, LOG_LINES, Collected, collect
from operations.doctor.commands import hosts_of
from operations.doctor.hosts.answer import HostLookError
from operations.exit_status import ExitStatus
from operations.new_files import check_new, new_file
from operations.options import Context, Stack
from operations.reading import hosts_without_cluster, open_place
from operations.redaction import environment_secrets
from operations.stack_file import read_stack_file
from operations.target import ROOT
from toolchain.progress import say

_OPTION = "--output"
VERSION = 1
"""Of the JSON; a change that breaks its readers is another one."""
_README = """# What this is

Objects, events and logs of KAI, the GPU Operator and kai-anywhere in one cluster, for an issue report. Made {made}.

# What was taken out

- Secrets and ConfigMaps were not read. Of pods that share a GPU there is what the scheduler and the kubelet say, which
  may name an image that can't be pulled; not their images, commands, variables and logs. Of their labels and
  annotations, and of those of KAI's pod groups, there are KAI's, NVIDIA's and Kubernetes' own.
- Values of environment variables, certificates, tokens, passwords and what looks like one are `[secret]`.
- Addresses are `address-1` and so on: the same address has the same name in every file.
- Names of nodes, namespaces, pods and queues are as they are. Look through the files before you publish them.

# What is not in it

{left_out}
"""


class Told(BaseModel, extra="forbid", frozen=True):
    """What `--json` prints."""

    version: int = VERSION
    file: str = Field(description="The archive.")
    files: Sequence[str] = Field(description="What is in it.")
    left_out: Sequence[str] = Field(description="What is not in it, and why, in words.")


def bundle(
    *,
    stack: Stack = "jetson",
    context: Context = None,
    hosts: Annotated[
        bool, typer.Option("--hosts", help="Ask the stack's hosts too, over SSH, as doctor does. Needs its passphrase.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="The archive; by default kai-anywhere-bundle-<time>.tar.gz in this folder.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what is in it as JSON; its schema is docs/bundle.schema.json.")
    ] = False,
) -> None:
    """Collect what an issue report needs, without secrets, into one archive; change nothing."""
    made = datetime.now(UTC)
    file = output or Path(f"kai-anywhere-bundle-{made:%Y%m%dT%H%M%SZ}.tar.gz")
    check_new(file, option=_OPTION)
    # The user's own have no reason to be in a log, and must not be in a bundle.
    own_secrets = environment_secrets(os.environ)
    alone = hosts_without_cluster(stack, context) if hosts else None
    if alone is not None:
        cleaner = Cleaner(own_secrets)
        collected = Collected(left_out=[f"the cluster: stack '{stack}' prepares hosts alone, and no cluster was named"])
        collected.files["versions.json"] = _json(_versions())
        _add_hosts(collected, cleaner, stack, alone)
    else:
        with open_place(stack, context) as place:
            cleaner = Cleaner(own_secrets.union(_secrets(place.cluster)))
            collected = collect(place.cluster, _namespaces(place.stack), cleaner, say)
            collected.files["versions.json"] = _json({"kubernetes": _server_version(place.cluster), **_versions()})
            if hosts:
                _add_hosts(collected, cleaner, stack, place.stack)
    settings = read_stack_file(ROOT / f"Pulumi.{stack}.yaml").get("config", {})
    collected.files["settings.json"] = _json(cleaner.component(settings))
    left_out = "\n".join(f"- {cleaner.text(line)}" for line in collected.left_out) or "Nothing else was left out."
    left_out += f"\n\nOf each log there are the last {LOG_LINES} lines, and {LOG_BYTES // 1024} KiB at most."
    collected.files["README.md"] = _README.format(made=f"{made:%Y-%m-%d %H:%M} UTC", left_out=left_out).encode()
    _write(file, file.name.removesuffix(".tar.gz"), collected.files)
    typer.echo(_summary(file, collected, as_json=as_json))
    if collected.left_out:
        raise typer.Exit(ExitStatus.WARNINGS)


def _add_hosts(collected: Collected, cleaner: Cleaner, stack: str, settings: StackSettings) -> None:
    """What the stack's hosts say of themselves.

    Raises:
        OperationError: if the stack has none.
    """
    say("What the stack's hosts say of themselves")
    try:
        reports = hosts_of(stack, settings)
    except HostLookError as error:
        collected.left_out.append(f"hosts: {error}")
        return
    collected.left_out += [
        f"host {node}: {report.trouble}" for node, report in sorted(reports.items()) if report.trouble
    ]
    answers = {
        node: report.examination.model_dump(mode="json") for node, report in reports.items() if report.examination
    }
    if answers:
        collected.files["hosts.json"] = _json(cleaner.component(answers))


def _summary(file: Path, collected: Collected, *, as_json: bool) -> str:
    if as_json:
        outcome = Told(file=str(file), files=sorted(collected.files), left_out=collected.left_out)
        return outcome.model_dump_json(indent=2)
    size = file.stat().st_size / 1024
    lines = [f"{file}: {len(collected.files)} files, {size:.0f} KiB. Look through it before you publish it."]
    lines += [f"warning: not in it: {line}" for line in collected.left_out]
    return "\n".join(lines)


def _namespaces(settings: StackSettings) -> set[str]:
    own = {
        manifest["metadata"]["name"]
        for manifest in every_object.objects(settings).values()
        if manifest["kind"] == "Namespace"
    }
    return own | {settings.kai.namespace, settings.gpu_operator.namespace, reservation.NAMESPACE}


def _secrets(cluster: Cluster) -> Iterator[str]:
    """What the kubeconfig has of them, and the files of tokens that it names."""
    folder = Path(os.path.expanduser(cluster.chosen.file)).parent
    for user in cluster.chosen.content.get("users") or ():
        content: Mapping[str, Any] = user.get("user") or {}
        yield from (str(content[key]) for key in ("token", "password", "client-key-data") if content.get(key))
        if file := content.get("tokenFile"):
            # Of a user who is not asked for, it may be another's, or nowhere.
            with suppress(OSError):
                yield (folder / file).read_text(encoding="utf-8", errors="replace").strip()


def _server_version(cluster: Cluster) -> str:
    try:
        return cluster.version().git
    except ClusterError as error:
        return f"not told: {str(error).splitlines()[0]}"


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: version(name) for name in ("pulumi", "pulumi-kubernetes", "pulumi-command", "pydantic")},
    }


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1).encode()


def _write(file: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """For its owner alone: what was not recognised as a secret is still nobody else's."""
    with new_file(file, option=_OPTION) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
