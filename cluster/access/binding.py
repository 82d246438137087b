"""Binds a stack to its cluster: the provider's connection is found by the cluster's identity, never by a context.

The Kubernetes provider reads its connection before anything else happens, and also where our program does not run:
`pulumi destroy`, `pulumi refresh`, the first half of `pulumi up --refresh`. With a kubeconfig's path or a context's
name in its inputs, those commands would work on whatever cluster that name means today. So the provider's input is a
path that follows from the cluster's UID alone. Every command that has compared that UID writes the file. Where the file
is missing, the provider takes the cluster for unreachable, and changes neither the cluster nor the state.
"""

import os
import pwd
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.access import credentials
from cluster.access.kubeconfig import ChosenContext
from cluster.errors import ClusterError
from config.cluster import ClusterSettings

_FOLDER = Path(".kai-anywhere/clusters")
_CREDENTIALS = Path(".kai-anywhere/credentials")
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def home() -> Path:
    """The home folder that the provider puts for `~` (Go's `os/user`): the account's, whatever HOME says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


NO_CLUSTER = f"~/{_FOLDER}/none"
"""The provider's connection in a preview without a cluster: there is no such file, so it contacts nothing."""


def bound_file(uid: str) -> Path:
    """Where this machine keeps the connection to a cluster.

    Raises:
        ClusterError: if the cluster's UID is none.
    """
    if not _UID.fullmatch(uid):
        raise ClusterError(f"The UID of the namespace kube-system is {uid!r}, which is not one that Kubernetes makes.")
    return home() / _FOLDER / uid


def bind(chosen: ChosenContext, uid: str) -> str:
    """Keep the connection of a context whose cluster was identified; gives its path as the provider reads it.

    The path is the same on every machine and for every person, so it never shows as a change. It is written again by
    every command, so that renewed credentials and another address of the same cluster reach it. Credentials are in
    files beside it (`cluster.access.credentials`). Only their owner can read any of them.

    Args:
        chosen: the context.
        uid: the identity of the cluster that answered under it.

    Raises:
        ClusterError: if a file can't be written, or a certificate or key is not Base64.
    """
    file = bound_file(uid)
    content = standalone(chosen)
    path = home() / _CREDENTIALS / uid / credentials.owner(chosen.file, chosen.name)
    [user] = content["users"]
    user["user"], files = credentials.set_apart(user["user"], path)
    try:
        # Before the kubeconfig that names them.
        credentials.keep(path, files)
        credentials.replace(file, yaml.safe_dump(content, sort_keys=False).encode())
    except OSError as error:
        raise ClusterError(
            f"The connection to the cluster can't be kept in {file}: {error}\n"
            "The Kubernetes provider reads it from there. Make the folder writable for this account."
        ) from error
    return f"~/{_FOLDER / uid}"


def bound(settings: ClusterSettings, uid: str) -> ClusterSettings:
    """The same cluster, whatever its context's name means by now."""
    return settings.model_copy(update={"kubeconfig": str(bound_file(uid)), "context": None})


def unbind(kubeconfig: Path) -> None:
    """Forget the connections to the cluster of a kubeconfig that is gone for good, known by its authority."""
    gone = _authorities(kubeconfig)
    for file in (home() / _FOLDER).glob("[!.]*"):
        if gone & _authorities(file):
            file.unlink(missing_ok=True)
            shutil.rmtree(home() / _CREDENTIALS / file.name, ignore_errors=True)


def _authorities(kubeconfig: Path) -> set[str]:
    try:
        content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        return {entry["cluster"].get("certificate-authority-data") for entry in content["clusters"]} - {None}
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return set()


def is_verified(chosen: ChosenContext) -> bool:
    """Whether the API server proves itself by a certificate, so that no other cluster can answer at its address."""
    cluster = chosen.config.cluster
    return str(cluster.server).startswith("https://") and not cluster.insecure


def standalone(chosen: ChosenContext) -> dict[str, Any]:
    """A kubeconfig with one context that means the same wherever it lies."""
    folder = Path(os.path.expanduser(chosen.file)).absolute().parent
    context = dict(_entry(chosen.content, "context", chosen.name))
    cluster, user = str(context["cluster"]), str(context["user"])
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": _absolute(_entry(chosen.content, "cluster", cluster), folder)}],
        "users": [{"name": user, "user": _absolute(_entry(chosen.content, "user", user), folder)}],
        "contexts": [{"name": chosen.name, "context": context}],
        "current-context": chosen.name,
    }


def _entry(content: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    entry: Mapping[str, Any] = next(item[kind] for item in content[f"{kind}s"] if item["name"] == name)
    return entry


def _absolute(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Paths in a kubeconfig are relative to its folder; so is a credential plugin's, unless it is found on PATH."""
    changed: dict[str, Any] = {
        key: str(folder / value) if key in _PATHS and value else value for key, value in entry.items()
    }
    plugin = changed.get("exec")
    if plugin and os.sep in plugin["command"]:
        changed["exec"] = plugin | {"command": str(folder / plugin["command"])}
    return changed
