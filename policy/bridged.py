"""Kubernetes objects as Terraform spells them, in Kubernetes' own spelling.

Providers that are bridged from Terraform say `security_context { privileged = true }` as `securityContexts:
[{privileged: true}]`, `security_context: [{...}]`, or right: it depends on the bridge. One pass makes them the same.
"""

import re

_PACKAGE = re.compile(r"kube|k8s|helm|kustomiz")
_VERSION = re.compile(r"V\d+((alpha|beta)\d+)?$")
_SNAKE = re.compile(r"_+([a-zA-Z0-9])")
_BLOCKS = {
    "container": "containers",
    "init_container": "initContainers",
    "volume": "volumes",
    "volume_mount": "volumeMounts",
    "volume_device": "volumeDevices",
    "port": "ports",
    "envs": "env",
    "env_froms": "envFrom",
    "rule": "rules",
    "subject": "subjects",
    "sysctl": "sysctls",
    "adds": "add",
    "drops": "drop",
    "commands": "command",
    "webhook": "webhooks",
}
_LISTS = frozenset(
    {
        *_BLOCKS.values(),
        *("items", "set", "validations", "mutations", "matchConditions", "resourceRules", "clusterRoleSelectors"),
    }
)
_SINGLE = frozenset(
    {
        *("metadata", "spec", "template", "jobTemplate", "podTemplate", "securityContext", "capabilities", "lifecycle"),
        *("seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions", "hostPath", "local", "resources"),
        *("livenessProbe", "readinessProbe", "startupProbe", "httpGet", "tcpSocket", "postStart", "preStop", "exec"),
        *("gitRepo", "flexVolume", "csi", "roleRef", "aggregationRule", "persistentVolumeSource"),
    }
)
_MAPS = frozenset({"labels", "annotations", "data", "binaryData", "stringData", "limits", "requests", "matchLabels"})
"""Their keys are the user's own."""


def is_bridged(token: str) -> bool:
    """Whether a type is a Terraform provider's for Kubernetes: its types stand in a module for each, below `index`."""
    package, _, rest = token.partition(":")
    return rest.startswith("index/") and _PACKAGE.search(package) is not None


def kubernetes_kind(name: str) -> str:
    """`Deployment` of `DeploymentV1`."""
    return _VERSION.sub("", name)


def kubernetes_spelling(node: dict[str, object]) -> dict[str, object]:
    """An object with Kubernetes' own keys, and blocks that are there once no longer in lists."""
    fields: dict[str, object] = {}
    for name, value in node.items():
        key = _spelt(name, value)
        alone = isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and key not in _LISTS
        content = value[0] if alone and isinstance(value, list) else value
        if key == "persistentVolumeSource" and isinstance(content, dict):
            fields |= kubernetes_spelling(content)
        else:
            fields[key] = content if key in _MAPS else _inner(content)
    return fields


def _inner(value: object) -> object:
    match value:
        case dict():
            return kubernetes_spelling(value)
        case list():
            return [_inner(item) for item in value]
        case _:
            return value


def _spelt(name: str, value: object) -> str:
    if name in _BLOCKS and isinstance(value, list):
        return _BLOCKS[name]
    key = _SNAKE.sub(lambda match: match.group(1).upper(), name)
    return key[:-1] if key[:-1] in _SINGLE and isinstance(value, list) else key
