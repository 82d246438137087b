"""The steps before anything is registered, the same for the program and for the package."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pulumi
import yaml
from pulumi.runtime import get_config_env, is_config_secret
from pulumi.runtime.config import CONFIG

from cluster.access.binding import NO_CLUSTER, bind, bound, is_verified
from cluster.ownership.giving_back import DESTROYS
from cluster.preflight.remembered_nodes import REFRESHES
from cluster.preflight.run import run_preflight
from components.adoption import sparing
from components.hosts.secrets import read_host_secrets
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from components.kubernetes import this_stack
from components.own_provider import is_found
from components.places import at_one_place
from components.stack_state import read_stack_state
from config.bases import PROJECT, from_folder, inherited
from config.cluster import ClusterSettings
from config.stack import BASE_KEY, SETTINGS_KEY, StackConfigError, StackSettings, parse_settings, secret_in_settings

_PROJECTS = ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json")


def plain_keys(namespace: str | None = None) -> list[str]:
    """A namespace's keys in the stack's configuration that are no secrets; by default the project's own."""
    prefix = f"{namespace or pulumi.get_project()}:"
    return sorted(key.removeprefix(prefix) for key in _keys() if key.startswith(prefix) and not is_config_secret(key))


def _keys() -> set[str]:
    return {*get_config_env(), *CONFIG.get()}


def settings_of_file(file: str, namespace: str | None = None) -> tuple[str | None, str | None]:
    """The settings as JSON, and the file that they build upon, as the stack's file says them.

    Args:
        file: the stack's file, for messages.
        namespace: that of the keys; by default the project's own.

    Raises:
        StackConfigError: if a part of the settings is a secret, or the project has another name than they go by.
    """
    if is_config_secret(f"{namespace or pulumi.get_project()}:{SETTINGS_KEY}"):
        raise secret_in_settings(file)
    config = pulumi.Config(namespace)
    settings = config.get(SETTINGS_KEY)
    if settings is None and pulumi.Config(PROJECT).get(SETTINGS_KEY) is not None:
        raise StackConfigError(
            f"{file} has {PROJECT}:{SETTINGS_KEY}, and the project is called '{config.name}' in Pulumi.yaml. Nothing "
            f"was changed.\nSettings, secrets and state go by the project's name: write `name: {PROJECT}` there."
        )
    return settings, config.get(BASE_KEY)


def _top_level_keys(file: Path) -> list[str]:
    """What stands in a stack file at the beginning of a line; nothing where the file is elsewhere.

    `pulumi config set` may write the comments at its end without their indentation; the engine reads no such section.
    """
    if not file.is_file():
        return []
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    return [str(key) for key in content] if isinstance(content, dict) else []


def install(  # noqa: PLR0913 - what the two entries say, by name
    name: str,
    settings_json: str | None,
    *,
    file: str,
    base: str | None = None,
    other_keys: Iterable[str] = (),
    package: bool = False,
    host_secrets: Mapping[str, pulumi.Output[str]] | None = None,
    opts: pulumi.ResourceOptions | None = None,
) -> KaiAnywhere:
    """Validate the settings, look at the cluster, register everything.

    Args:
        name: the component's name.
        settings_json: the settings as JSON, or None where there are none.
        file: where they stand, for error messages.
        base: the file that they build upon, as seen from the project's folder.
        other_keys: what else stands there in plain text, which nothing reads.
        package: whether the package's own process asks, of which the engine knows then.
        host_secrets: secrets of hosts by name; the stack's configuration has those that are not given.
        opts: the component's options.

    Raises:
        StackConfigError: if a setting is wrong.
        ClusterError: if the cluster can't be read or is not ready.
    """
    folder = _folder(package=package)
    settings = _settings(settings_json, folder, file, base, other_keys)
    secrets = read_host_secrets(settings.hosts, host_secrets)
    state = read_stack_state()
    if state.cluster_uid is None and not settings.hosts_alone:
        _refuse_what_names_a_cluster_elsewhere(name, settings.cluster, opts)
    preflight = run_preflight(
        settings,
        state,
        preview=pulumi.runtime.is_dry_run(),
        stack=this_stack(),
        destroys=DESTROYS in os.environ,
        refreshes=REFRESHES in os.environ,
    )
    for warning in preflight.warnings:
        pulumi.log.warn(warning)
    opts = pulumi.ResourceOptions.merge(opts, at_one_place(name, state.urns))
    uid, context = preflight.cluster_uid, preflight.context
    few_resources = package or is_found(folder)
    if uid is None or context is None:
        args = KaiAnywhereArgs(settings, None, NO_CLUSTER, secrets, few_resources=few_resources)
        return KaiAnywhere(name, args, opts)
    if not is_verified(context):
        pulumi.log.warn(
            f"Context '{context.name}' does not verify the certificate of {context.config.cluster.server}: if another "
            "cluster gets this address, `pulumi destroy` and `pulumi refresh` can't tell it from this one. Remove "
            "insecure-skip-tls-verify, and name the cluster's certificate authority."
        )
    kubeconfig = bind(context, uid)
    settings = settings.model_copy(update={"cluster": bound(settings.cluster, uid)})
    opts = pulumi.ResourceOptions.merge(opts, sparing(name, preflight.adopted, settings.cluster))
    args = KaiAnywhereArgs(settings, uid, kubeconfig, secrets, few_resources=few_resources, adopted=preflight.adopted)
    return KaiAnywhere(name, args, opts)


def _refuse_what_names_a_cluster_elsewhere(
    name: str, cluster: ClusterSettings, opts: pulumi.ResourceOptions | None
) -> None:
    """Stop before a first run where a cluster is named in Pulumi's own ways, which nothing here reads, and not in ours.

    Symptom without it: everything is installed in the cluster of kubectl's current context. Later runs know theirs.

    Raises:
        StackConfigError: if there is such a name.
    """
    named = cluster.context or cluster.kubeconfig
    providers = opts.providers if opts is not None else None
    elsewhere = {
        "the stack's configuration has kubernetes:context": "kubernetes:context" in _keys() and cluster.context is None,
        "the stack's configuration has kubernetes:kubeconfig": "kubernetes:kubeconfig" in _keys() and named is None,
        f"'{name}' was given a provider of Kubernetes": "kubernetes" in (providers or ()) and named is None,
    }
    if unread_keys := [text for text, unread in elsewhere.items() if unread]:
        raise StackConfigError(
            f"The settings do not name the cluster, and {unread_keys[0]}, by which only other resources go: this would "
            "go to kubectl's current context. Nothing was changed.\nSay cluster.context in the settings, or "
            "cluster.kubeconfig with it."
        )


def _folder(*, package: bool) -> Path:
    """The project's folder, in which its stacks' files are.

    A language host may not tell it (3.78.1 does not): the program then runs in it, unless Pulumi.yaml has `main`. The
    package's process is started where the program runs, and is told nothing.
    """
    folder = Path(pulumi.get_root_directory() or ".")
    around = (folder, *folder.absolute().parents) if package else ()
    return next((parent for parent in around if any((parent / name).is_file() for name in _PROJECTS)), folder)


def _settings(
    settings_json: str | None, folder: Path, file: str, base: str | None, other_keys: Iterable[str]
) -> StackSettings:
    top_level_keys = _top_level_keys(folder / file)
    if settings_json is None or base is None:
        return parse_settings(settings_json, file=file, other_keys=other_keys, top_level_keys=top_level_keys)
    layered = inherited(file, json.loads(settings_json), base, from_folder(folder))
    return parse_settings(
        json.dumps(layered.merged),
        file=layered.title,
        other_keys=other_keys,
        top_level_keys=top_level_keys,
        origin=layered.origin,
    )
