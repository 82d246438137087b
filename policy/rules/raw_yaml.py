"""No privilege in text that a program applies: scripts of Jobs, hosts and ConfigMaps.

Text that parses as YAML or JSON is judged by every rule as the objects that it holds (workloads.py); here is what only
a shell would understand.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from pod_checks import table
from policy.containers import host_power_of_command, host_power_of_compose
from policy.findings import Told, Violation
from policy.reading import TEXT, Path, list_of
from policy.rule import Rule
from policy.rules import rbac
from policy.rules.namespaces import OLD_REMEDY, OLD_VERSION, OLD_WHY
from policy.stack_platform import StackFacts
from policy.workloads import CONTAINER_LISTS, Document, is_compose

_APPLIES = re.compile(r"\b(kubectl|helm|oc|k3s|microk8s|k8s|crictl|ctr|docker|podman|nerdctl)\b")
_PRIVILEGE = re.compile(
    r"""\b(?:kubectl|oc)\b[^\n;|&]{0,500}--privileged\b(?!=false)
    | ["']?privileged\\?["']?\s*[:=]\s*\\?["']?true
    | ["']?host(?:Network|PID|IPC)\\?["']?\s*[:=]\s*\\?["']?true
    | \bhostPath(?:\\?["']?\s*:|(?:\.path)?=/)
    | \bcapabilities\b[^\n;|&]{0,30}\badd(?:\\?["']\s*:|=|\[\d{1,3}\]=)[^\n;|&\]]{0,120}
      \b(?:CAP_)?(?:ALL|BPF|PERFMON|DAC_READ_SEARCH|SYS_(?!CHROOT\b)[A-Z]+|NET_(?!BIND_SERVICE\b)[A-Z]+)\b
    | \b(?:seccomp|appArmor)Profile\b[^\n;|&]{0,60}\bUnconfined\b
    | \bset\s+env\b[^\n;|&]{0,500}\sNVIDIA_VISIBLE_DEVICES=(?!["']?(?:none|void)?["']?(?:\s|$))
    | /(?:privileged|host(?:Network|PID|IPC|Path)|procMount)\b
    | --profile[=\s]\s{0,99}\\?["']?sysadmin
    | \bdebug\s(?:[^\n;|&]{0,200}\s)?["']?(?:no|nodes?)/
    | pod-security\.kubernetes\.io/enforce\\?["']?\s*[:=]\s*\\?["']?(?:privileged|null\b)
    | pod-security\.kubernetes\.io~1enforce\b(?!-)
      (?![^{}]{0,200}\bvalue\\?["']?\s*:\s*\\?["']?(?:baseline|restricted)\b)
    | pod-security\.kubernetes\.io/enforce-(?![\w-])
    | --clusterrole[=\s]\s{0,99}["']?(?:cluster-admin|system:(?:controller:|kube-controller-manager|node\b|masters))
    | \bcreate\s+clusterrolebinding\b[^\n;|&]{0,500}\s--clusterrole[=\s]\s{0,99}["']?(?:admin|edit)\b(?!-)
    | \bcreate\s+(?:cluster)?role\b[^\n;|&]{0,500}
      \s--verb[=\s]\s{0,99}["']?(?:[\w,]{1,99},)?(?:\*|escalate\b|bind\b|impersonate\b)
    | \bcreate\s+(?:cluster)?role\b[^\n;|&]{0,500}
      \s--resource[=\s]\s{0,99}["']?(?:[\w,./-]{1,99},)?(?:\*|nodes/proxy\b)
    | --group[=\s]\s{0,99}["']?system:(?:masters|authenticated|unauthenticated|serviceaccounts\b(?!:))
    | kai-anywhere\.io/platform=["']?tegra
    """,
    re.VERBOSE,
)
_SELECTORS = re.compile(
    r"""\s(?:-l|--selector)[= ]?["']?[\w./,=!-]{0,500}(?:pod-security\.kubernetes|kai-anywhere)\.io/[\w./,=!-]{0,500}"""
)
"""Labels that a command asks for, and does not set."""
_SETTINGS = re.compile(
    r"""^[ \t-]*(?:[\w.]{1,99}\.)?["']?(?:privileged|host_?(?:network|pid|ipc))["']?[ \t]*[:=][ \t]+true[ \t]*,?\r?$
    | ^[ \t-]*["']?hostPath["']?[ \t]*:[ \t]*(?:\r?$|\{)
    | ["']hostPath["'][ \t]*:[ \t]*\{ | ["'](?:privileged|host(?:Network|PID|IPC))["'][ \t]*:[ \t]*true\b
    | ^[ \t]*\[\[[\w.]{1,99}\.host_path\]\]
    | \bspark\.[\w.]{1,99}\.volumes\.hostPath\.
    """,
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
"""Settings of pods in templates, TOML, Python and properties, as lines or objects; in a sentence they say nothing."""
_FETCHES = (
    r"""(?:(?:curl|wget)\b|(?>(?>helm\b[^\n;&|]{0,99}?\stemplate\s)[^\n;&|]{0,500}?"""
    r"""(?:(?<=\s)["']?|--(?:repo|values)[=\s]["']?)(?:https?|oci)://))"""
)
_PLAYS = r"(?>podman\b[^\n;|&]{0,200}?\b(?:kube\s+play|play\s+kube)\b)"
_REMOTE = re.compile(
    r"\b(?:apply|create|replace)\b[^\n;|&]{0,500}"
    r"(?:\s-R?[fk]\s*+=?\s*+['\"]?(?:https?://|<\(\s*+" + _FETCHES + r")|<<<\s*+['\"]?\$\(\s*+" + _FETCHES + r")"
    r"|--(?:filename|kustomize)[=\s]\s{0,99}['\"]?https?://"
    r"|\b(?:sh|bash)\s(?:[^\n;|&]{0,100}\s)?(?:<\(|-\w{0,5}c\s+['\"]?\$\()\s*+(?:curl|wget)\b"
    r"|\b" + _PLAYS + r"[^\n;|&]{0,500}\s(?:['\"]?https?://|<\(\s*+(?:curl|wget)\b)"
)
_PIPED = re.compile(
    r"(?:(?:base64\s+(?:-d|-D|--decode)|gunzip|zcat)\b|kustomize\b[^\n;&|]{0,99}(?:https?://|github\.com)|"
    + _FETCHES
    + r")(?:[^\n;&]|&(?=[\w%])){0,500}\|&?\s*+(?:sudo\b[^\n;|&]{0,100}\s)?"
    r"(?:(?:kubectl|oc|k3s|microk8s|k8s|sh|bash)\b|" + _PLAYS + r")"
    r"|\b(?:apply|create)\b[^\n;|&]{0,500}\s(?:-k|--kustomize)[= ]\s*(?:github\.com|git@|\S{1,200}\?ref=)"
)
_GPUS = re.compile(
    r"""\s["']?(?:--gpus\b|--runtime["']?[= ]["']?nvidia|--device["']?[= ]["']?nvidia\.com/
    |(?:-e|--env)[= ]?["']?NVIDIA_VISIBLE_DEVICES(?!=["']?(?:none|void)?["']?(?:\s|$)))""",
    re.VERBOSE,
)
_CONTINUED = re.compile(r"\\\r?\n")
_CONTAINER_TOOLS = re.compile(r"\b(?:docker|podman|nerdctl|ctr)\b")
_GUARDS = re.compile(
    r"""\bkai-anywhere-(?:pod-guard|reservation-guard|reservation-overrides)\b
    | \bkai-anywhere\.io/pod-guard(?:-(?![\w-])|\\?+["']?+\s*+[=:]\s*+\\?+["']?+(?!enforce\b))
    | \b(?:validating|mutating)admissionpolic\w+\b[^\n;&|]{0,200}(?:\s--all\b|\s-l\b|\s--selector\b|\$)
    | (?:\s--all\b|\s-l\b|\s--selector\b|\$\()[^\n;&|]{0,200}\b(?:validating|mutating)admissionpolic
    | \b(?:validating|mutating)admissionpolic[^\n;&]{0,200}\|\s*xargs\b(?=[^\n;&|]{0,100}\bdelete\b)
    """,
    re.VERBOSE,
)
_TAKES_AWAY = re.compile(r"(?<![=\w])(?:delete|patch|edit|replace|label)\b")
_READ_OF_KUBELETS = r"""/(?:metrics|stats|healthz|configz|pods)(?:/\w{1,99}){0,9}/?(?=[\s?"'`);|&]|$)"""
_VERSION_LABEL = r"pod-security\.kubernetes\.io(?:/|~1)enforce-version"
_OLD_VALUE = rf"""\\?["']?{OLD_VERSION}(?![0-9])"""
_OPTION = r"""[=\s]\s{0,99}\\?["']?"""
_IN_SYSTEM = r"""\s(?:-n[=\s]?|--namespace[=\s])\s{0,99}["']?kube-system(?![\w.-])"""


class _Door(NamedTuple):
    """A command that gets rights which no object of the program says: its pattern, and what a finding says of it."""

    pattern: re.Pattern[str]
    found: str
    why: str
    remedy: str


_DOORS = (
    _Door(
        re.compile(rf"/api/v1/nodes/(?:\$\([^()\n]{{1,200}}\)|[^\s/()]{{1,253}})/proxy\b(?!{_READ_OF_KUBELETS})"),
        "a request to a node's kubelet",
        rbac.KUBELET_WHY,
        "use kubectl exec, logs or top; requests for metrics, stats, healthz, configz and pods pass",
    ),
    _Door(
        re.compile(rf"--as-group{_OPTION}system:masters(?![\w:.-])"),
        "a command as system:masters",
        "the group may do everything, and no role limits it",
        "give the command's account a role with the verbs and resources that are used",
    ),
    _Door(
        re.compile(
            r"""(?:--overrides[=\s]|\bpatch\s)(?:[^;|&]{0,1000}?|[^\n;|&']{0,200}'[^']{0,1000}?)"""
            r"""\bnodeName\\?["']\s{0,99}:\s{0,99}\\?["'][\w$]|/spec/nodeName\\?["']"""
        ),
        "a pod's node name",
        table.BY_NAME["node_names"].why,
        table.BY_NAME["node_names"].remedy,
    ),
    _Door(
        re.compile(
            rf"""{_VERSION_LABEL}(?:\\?["']?\s*[:=]\s*|[^{{}}]{{0,200}}\bvalue\\?["']?\s*:\s*){_OLD_VALUE}"""
            rf"""|\bvalue\\?["']?\s*:\s*{_OLD_VALUE}[^{{}}]{{0,200}}{_VERSION_LABEL}"""
        ),
        "an old version of a Pod Security level",
        OLD_WHY,
        OLD_REMEDY,
    ),
    _Door(
        re.compile(
            r"\bcreate\s+(?:cluster)?role\b"
            rf"(?=[^\n;|&]{{0,500}}\s--verb{_OPTION}(?:\w{{1,20}},){{0,20}}(?:update|patch)\b)"
            rf"[^\n;|&]{{0,500}}\s--resource{_OPTION}(?:[\w./-]{{1,99}},){{0,20}}"
            r"(?:ns|namespaces?)(?:/status|/finalize)?(?![\w./-])"
        ),
        "a role that may change namespaces",
        rbac.NAMESPACES_WHY,
        rbac.NAMESPACES_REMEDY,
    ),
    _Door(
        re.compile(
            rf"(?:{_IN_SYSTEM}[^\n;|&]{{0,200}}\bcreate\s+rolebinding\b"
            rf"|\bcreate\s+rolebinding\b(?=[^\n;|&]{{0,500}}{_IN_SYSTEM}))"
            rf"[^\n;|&]{{0,500}}\s--clusterrole{_OPTION}(?:admin|edit)(?![\w:.-])"
        ),
        "an editor of kube-system",
        rbac.PRIVILEGED_NAMESPACE_WHY,
        rbac.PRIVILEGED_NAMESPACE_REMEDY,
    ),
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
        for path, value in host_power_of_compose(document.root):
            yield Violation((*document.path, *path), value, _HOST_WHY, _HOST_REMEDY)
    for path, script in _scripts(document):
        # A shell takes a line that ends in a backslash and the next one for one line; settings are lines as they stand.
        text = _CONTINUED.sub("  ", script)
        if option := host_power_of_command(text):
            yield Violation((*path, TEXT), Told(option), _HOST_WHY, _HOST_REMEDY)
        elif match := _PRIVILEGE.search(_SELECTORS.sub(" ", text)) or _SETTINGS.search(script):
            yield Violation((*path, TEXT), Told(match.group().strip()))
        if _REMOTE.search(text) or _PIPED.search(text):
            yield Violation(
                (*path, TEXT),
                Told("a manifest from the network, or in disguise"),
                "what is applied is not in this program, and nothing judges it",
                "register the manifest's objects in the program",
            )
        yield from _ways_around(path, text)


def _ways_around(path: Path, text: str) -> Iterator[Violation]:
    """Containers past the scheduler, rights by a side door, and commands that take the guards away."""
    if any(_CONTAINER_TOOLS.search(_command_before(text, match)) for match in _GPUS.finditer(text)):
        yield Violation(
            (*path, TEXT),
            Told("a container with GPUs, past Kubernetes"),
            "it gets GPUs that the scheduler gave to others",
            "run it as a pod that requests its GPU",
        )
    set_text = _SELECTORS.sub(" ", text)
    for door in _DOORS:
        if door.pattern.search(set_text):
            yield Violation((*path, TEXT), Told(door.found), door.why, door.remedy)
    for match in _GUARDS.finditer(text):
        if "xargs" in match.group() or _TAKES_AWAY.search(_command_before(text, match)):
            yield Violation(
                (*path, TEXT),
                Told("a command that takes a guard away"),
                "without its guards the cluster takes what this pack refuses",
                "change the guards through the stack's settings (pod_guard)",
            )
            return


def _command_before(text: str, match: re.Match[str]) -> str:
    """What stands before it in the same command of a shell."""
    return re.split(r"[\n;|&]", text[max(match.start() - 500, 0) : match.start()])[-1]


def _scripts(document: Document) -> Iterator[tuple[Path, str]]:
    """Text that runs: commands of containers as one line, strings that call a tool or set up pods, templates."""
    for path, text in document.strings.items() if _runs(document.text) else ():
        if path[-1] != "description" and path[-2:-1] not in _WORDS and _runs(text):
            yield path, text
    for field in document.fields("command", "args"):
        text = " ".join(part for part in list_of(field.value) if isinstance(part, str))
        if _runs(text):
            yield field.path, text


def _runs(text: str) -> bool:
    return "apiVersion:" in text or any(pattern.search(text) for pattern in (_APPLIES, _SETTINGS))


RULE = Rule(
    name="raw-yaml",
    title="No script applies anything privileged or from the network, takes rights past its roles, or removes a guard.",
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
