"""Finds the kubeconfig and context that a stack means, as kubectl does."""

import copy
import os
import re
import shlex
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from cluster.errors import ClusterError, ClusterUnreachableError

_KUBECTL = re.compile(
    r"\bkubectl (?=(?:--namespace|apply|cordon|create|delete|describe|edit|get|label|logs|patch|scale|taint|uncordon) )"
)
_HELM = re.compile(r"\bhelm (?=(?:install|list|uninstall|upgrade) )")
"""Commands in a text, which may say of kubectl what it does, too."""


@dataclass(frozen=True)
class ChosenContext:
    """A context with its cluster and user.

    Attributes:
        name: the context's name.
        file: the kubeconfig that defines it, as the user wrote it.
        config: what a client needs.
        content: all that the file holds.
    """

    name: str
    file: str
    config: SingleConfig = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)

    @property
    def is_current(self) -> bool:
        """Whether it is what kubectl takes where its file alone is named."""
        return bool(self.content.get("current-context") == self.name)

    @property
    def proxy(self) -> str | None:
        """The proxy that the file names for the cluster; None where the environment decides."""
        return self._cluster.get("proxy-url")

    @property
    def tls_server_name(self) -> str | None:
        """The name that the API server's certificate is for, where it is reached by another one, as by a tunnel."""
        return self._cluster.get("tls-server-name")

    @property
    def login(self) -> Mapping[str, Any]:
        """The program that the file names for the user; nothing where it names none."""
        return self._user.get("exec") or {}

    @property
    def acts_as(self) -> Sequence[tuple[str, str]]:
        """The headers by which the user acts as somebody else, where the file says so (`as`, `as-groups`)."""
        user = self._user
        said = {
            "Impersonate-User": [user.get("as")],
            "Impersonate-Uid": [user.get("as-uid")],
            "Impersonate-Group": user.get("as-groups") or [],
        }
        for key, values in (user.get("as-user-extra") or {}).items():
            said[f"Impersonate-Extra-{quote(key, safe='')}"] = values
        return [(name, str(value)) for name, values in said.items() for value in values if value]

    @property
    def _cluster(self) -> Mapping[str, Any]:
        return self._entry("cluster", self.config.context.cluster)

    @property
    def _user(self) -> Mapping[str, Any]:
        return self._entry("user", self.config.context.user)

    def _entry(self, kind: str, name: str | None) -> Mapping[str, Any]:
        """What the file says of a cluster or user."""
        return next((entry[kind] for entry in self.content.get(f"{kind}s", ()) if entry["name"] == name), {})


def choose_context(kubeconfig: str | None = None, context: str | None = None) -> ChosenContext:
    """The named context of the named file, or kubectl's own.

    KUBECONFIG may name several files, joined as in PATH; missing ones are passed over. A context's cluster and user
    must stand in the file that defines the context.

    Raises:
        ClusterUnreachableError: if there is no kubeconfig.
        ClusterError: if one can't be read, or has no such context.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    names = [chosen] if kubeconfig else [name for name in chosen.split(os.pathsep) if name]
    files = {name: _read(name) for name in names if _is_file(name)}
    if not files:
        folder = next((name for name in names if Path(os.path.expanduser(name)).is_dir()), None)
        problem = f"{folder} is a folder, not a kubeconfig." if folder else f"No kubeconfig at {chosen}."
        raise ClusterUnreachableError(
            f"{problem}\nSet cluster.kubeconfig in the stack's settings, or KUBECONFIG, to a file that kubectl can use."
        )
    current = [config.current_context for config, _ in files.values() if config.current_context]
    context = context or next(iter(current), None)
    for name, (config, content) in files.items():
        if context is not None and context in config.contexts:
            return ChosenContext(context, name, _single(name, config, context), content)
    contexts = sorted({context_name for config, _ in files.values() for context_name in config.contexts})
    problem = f"has no context '{context}'" if context else "has no current context"
    remedy = (
        "Name one of them: cluster.context in the stack's settings, or --context where the command has it."
        if contexts
        else "It names no cluster: set cluster.kubeconfig in the stack's settings, or KUBECONFIG, to a file that does."
    )
    raise ClusterError(f"The kubeconfig {chosen} {problem}. Contexts: {', '.join(contexts) or 'none'}.\n{remedy}")


def for_its_cluster(text: str, chosen: ChosenContext) -> str:
    """A text whose commands of kubectl and helm are for a context's cluster.

    Symptom without it: who pastes a remedy uninstalls a release of another cluster, that of kubectl's own context.
    """
    if _is_kubectls_own(chosen):
        return text
    file, context = in_shell(chosen.file), shlex.quote(chosen.name)
    text = _KUBECTL.sub(lambda _: f"kubectl --kubeconfig {file} --context {context} ", text)
    return _HELM.sub(lambda _: f"helm --kubeconfig {file} --kube-context {context} ", text)


def _is_kubectls_own(chosen: ChosenContext) -> bool:
    """Whether kubectl takes a context by itself, where no option names a file or a context."""
    try:
        own = choose_context()
    except ClusterError:
        return False
    return own.name == chosen.name and _absolute(own.file) == _absolute(chosen.file)


def _absolute(name: str) -> Path:
    return Path(os.path.expanduser(name)).absolute()


def in_cluster(folder: str = SERVICE_ACCOUNT) -> ChosenContext:
    """How a pod reaches the API server of its cluster.

    Args:
        folder: where the kubelet mounts the service account's token and the API server's authority.

    Raises:
        ClusterUnreachableError: this process does not run in a pod.
    """
    try:
        config = KubeConfig.from_service_account(folder)
    except (ConfigError, KeyError) as error:
        raise ClusterUnreachableError(
            f"This process does not run in a pod with a service account's token: {error}"
        ) from error
    single = config.get()
    if single is None:
        raise ClusterUnreachableError("The service account's files name no cluster.")
    return ChosenContext("in-cluster", folder, single, {})


def _is_file(name: str) -> bool:
    path = Path(os.path.expanduser(name))
    try:
        # From Python 3.14 on, `is_file` says no where it may not look.
        path.stat()
    except PermissionError:
        raise _forbidden(name) from None
    except (OSError, ValueError):
        return False
    return path.is_file()


def in_shell(name: str) -> str:
    """A kubeconfig in a command that can be pasted into a shell, which would leave a quoted `~` as it is."""
    return shlex.quote(os.path.expanduser(name))


def _forbidden(name: str) -> ClusterError:
    return ClusterError(
        f"The kubeconfig {name} can't be read: you lack the right to it.\n"
        f'Name a copy that is yours: sudo install -m 600 -o "$USER" {in_shell(name)} COPY'
    )


def _read(name: str) -> tuple[KubeConfig, Mapping[str, Any]]:
    path = Path(os.path.expanduser(name))
    try:
        with path.open(encoding="utf-8") as file:
            content = _sections(yaml.safe_load(file))
        return KubeConfig.from_dict(content, path), content
    except PermissionError:
        raise _forbidden(name) from None
    except (ConfigError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise ClusterError(
            f"The kubeconfig {name} can't be read: {error}\n"
            f"Check it with: kubectl --kubeconfig {in_shell(name)} config view"
        ) from error


def _sections(content: object) -> dict[str, Any]:
    """A kubeconfig's content; a section that is absent or empty is an empty list, as kubectl reads it."""
    if not isinstance(content, dict | types.NoneType):
        raise ConfigError("it is not a mapping")
    sections = {key: value for key, value in (content or {}).items() if value is not None}
    return {"clusters": [], "contexts": [], "users": []} | sections


def _single(name: str, config: KubeConfig, context: str) -> SingleConfig:
    entry = config.contexts[context]
    for kind, referred, entries in (("cluster", entry.cluster, config.clusters), ("user", entry.user, config.users)):
        if referred not in entries:
            reference = f"the {kind} '{referred}', which is not there" if referred else f"no {kind}"
            raise ClusterError(
                f"The context '{context}' of {name} names {reference}.\n"
                f"Correct it with: kubectl --kubeconfig {in_shell(name)} config set-context {shlex.quote(context)} "
                f"--{kind} NAME"
            )
    file = Path(os.path.expanduser(name))
    user = copy.copy(config.users[entry.user or ""])
    # As kubectl reads them: an empty token is none, and the file of one is sought beside the kubeconfig.
    user.token = user.token or None
    user.token_file = str(file.parent / user.token_file) if user.token_file else None
    return SingleConfig(context, entry, config.clusters[entry.cluster], user, file)
