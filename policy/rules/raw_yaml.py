"""No privilege in text that a program applies: scripts of Jobs, hosts and ConfigMaps.

Text that parses as YAML or JSON is judged by every rule as the objects that it holds (workloads.py); here is what only
a shell would understand.
"""

import re
from collections.abc import Iterator

from policy.containers import host_power_of_command, host_power_of_compose
from policy.findings import Told, Violation
from policy.reading import TEXT, Path, list_of
from policy.rule import Rule
from policy.stack_platform import StackFacts
from policy.workloads import CONTAINER_LISTS, Document, is_compose

_APPLIES = re.compile(r"\b(kubectl|helm|oc|k3s|microk8s|k8s|crictl|ctr|docker|podman|nerdctl)\b")
_PRIVILEGE = re.compile(
    r"""\b(?:kubectl|oc)\b[^\n;|&]{0,500}--privileged\b(?!=false)
    | ["']?privileged["']?\s*[:=]\s*\\?["']?true
    | ["']?host(?:Network|PID|IPC)["']?\s*[:=]\s*\\?["']?true
    | \bhostPath\\?["']?\s*:
    | /(?:privileged|host(?:Network|PID|IPC|Path)|procMount)\b
    | --profile[= ]\\?["']?sysadmin
    | \bdebug\s+node/
    | pod-security\.kubernetes\.io/enforce\\?["']?\s*[:=]\s*\\?["']?privileged
    | pod-security\.kubernetes\.io/enforce-(?![\w-])
    | --clusterrole[= ]["']?(?:cluster-admin|system:(?:controller:|kube-controller-manager|node\b|masters))
    | --group[= ]["']?system:(?:masters|authenticated|unauthenticated|serviceaccounts\b(?!:))
    | kai-anywhere\.io/platform=tegra
    """,
    re.VERBOSE,
)
_REMOTE = re.compile(
    r"\b(?:apply|create|replace)\b[^\n;|&]{0,500}\s-(?:f|k)\s*=?\s*['\"]?https?://|--filename[= ]['\"]?https?://"
)
_PIPED = re.compile(
    r"(?:curl|wget|base64\s+(?:-d|-D|--decode)|gunzip|zcat)\b[^\n;&]{0,500}\|\s*(?:kubectl|oc|k3s|sh|bash)\b"
    r"|\b(?:apply|create)\b[^\n;|&]{0,500}\s(?:-k|--kustomize)[= ]\s*(?:github\.com|git@|\S{1,200}\?ref=)"
)
_CHECKED_ELSEWHERE = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "CustomResourceDefinition")
"""Their expressions and descriptions name security fields; the rule `admission` reads those that add something."""


_HOST_WHY = "the container gets files, devices or rights of its host, past Kubernetes and its admission"
_HOST_REMEDY = "run it as a pod without them, or with a named volume"


_WORDS = (("command",), ("args",))
"""Keys of lists that are one command."""


def _check(document: Document, _: StackFacts) -> Iterator[Violation]:
    if document.is_only(*_CHECKED_ELSEWHERE):
        return
    if is_compose(document.root):
        for path, found in host_power_of_compose(document.root):
            yield Violation((*document.path, *path), found, _HOST_WHY, _HOST_REMEDY)
    for path, text in _scripts(document):
        if option := host_power_of_command(text):
            yield Violation((*path, TEXT), Told(option), _HOST_WHY, _HOST_REMEDY)
        elif found := _PRIVILEGE.search(text):
            yield Violation((*path, TEXT), Told(found.group().strip()))
        if _REMOTE.search(text) or _PIPED.search(text):
            yield Violation(
                (*path, TEXT),
                Told("a manifest from the network, or in disguise"),
                "what is applied is not in this program, and nothing judges it",
                "register the manifest's objects in the program",
            )


def _scripts(document: Document) -> Iterator[tuple[Path, str]]:
    """Text that runs: commands of containers as one line, strings that call a tool, templates of manifests."""
    for path, text in document.strings.items():
        if path[-1] != "description" and path[-2:-1] not in _WORDS and (_APPLIES.search(text) or "apiVersion:" in text):
            yield path, text
    for field in document.fields("command", "args"):
        text = " ".join(part for part in list_of(field.value) if isinstance(part, str))
        if _APPLIES.search(text):
            yield field.path, text


RULE = Rule(
    name="raw-yaml",
    title="No script starts or applies anything privileged, or applies manifests from the network.",
    why="what a program applies at run time passes this pack and the review by",
    remedy="register the object in the program, without the privilege",
    reads=frozenset(),
    check=_check,
    programs=frozenset(
        {
            "ConfigGroup:yaml",
            "ConfigGroup:objs",
            "ConfigGroup:files",
            "ConfigFile:file",
            "Directory:directory",
            "Manifest:yamlBody",
            *(f"{key}.{part}" for key in CONTAINER_LISTS for part in ("command", "args")),
        }
    ),
)
