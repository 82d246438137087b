"""What the stack's platform grants, read from the stack's own settings or the pack's configuration."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policy.own_exceptions import OwnException
from policy.reading import dict_of, list_of, one_of, text_of

STACK_CONFIG = "kai-anywhere"
"""Project whose configuration holds the settings of a stack."""
STACK_CONFIG_KEY = "settings"

RESERVATION = "kai-resource-reservation"
"""Namespace, app label and service account of KAI's reservation pods (KAI v0.17.0)."""
RESERVATION_CONTAINER = "resource-reservation"
OVERRIDES = "kai-anywhere-reservation-overrides"
"""The admission policy that adds to reservation pods on Tegra nodes."""
SERVER_SETTINGS = ("data", "settings.json")
RESERVATION_MUTATION = ("mutations", "reservation")
"""Where the admission server's ConfigMap holds the same for the carrier `webhook`. The server adds it to nothing but
reservation pods on Tegra nodes, which the document itself names."""
PLATFORM_LABEL = "kai-anywhere.io/platform"
TEGRA = "tegra"

_REGISTRY = "ghcr.io/kai-scheduler/kai-scheduler"
"""Where KAI's images are unless the stack says otherwise (KAI v0.17.0, values.yaml)."""
_LIBRARIES = "/usr/lib/aarch64-linux-gnu/nvidia"
_DEVICES = "/dev"
_LIBRARY_PATH = re.compile(r"/(usr/(local/)?lib|opt)(/[\w.+-]+)+")
_DEVICE_PATH = re.compile(r"/dev(/[\w-]+)*")

SECTIONS = ("platform", "reservation", "gpu_operator", "kai", "gvirtus")
"""The sections of a stack's settings that the pack reads."""
UNKNOWN_PROGRAMS = "unknown-programs"
"""Stands for a rule's name where `levels` says what an unknown image, command or manifest is."""
LEVELS = frozenset({"mandatory", "advisory", "disabled"})

CONFIG_SCHEMA: dict[str, dict[str, object]] = {
    "platform": {
        "type": "object",
        "description": "the stack's `platform` section; absent means x86: nothing is granted",
    },
    "reservation": {"type": "object", "description": "the stack's `reservation` section"},
    "gpu_operator": {"type": "object", "description": "the stack's `gpu_operator` section"},
    "kai": {"type": "object", "description": "the stack's `kai` section"},
    "gvirtus": {"type": "object", "description": "the stack's `gvirtus` section"},
    "stack": {
        "type": "object",
        "description": "what the stack's own file says of these sections; it applies where they are absent here",
    },
    "levels": {
        "type": "object",
        "description": f"a rule's name, or {UNKNOWN_PROGRAMS}, to its level: {', '.join(sorted(LEVELS))}",
        "additionalProperties": {"type": "string", "enum": sorted(LEVELS)},
    },
    "exceptions": {
        "type": "array",
        "description": "findings that are accepted, in place of the file policy-exceptions.yaml",
        "items": {"type": "object"},
    },
}
"""The pack's configuration: the shape of the stack's settings, and what it alone says."""


@dataclass(frozen=True)
class StackFacts:
    """What rules may know of the stack.

    Attributes:
        tegra_nodes: nodes whose reservation pods get the grants; empty means that nothing is granted.
        labelled_nodes: nodes that may carry the platform label: the same, also where overrides are off.
        libraries: host folder of the driver's libraries.
        devices: host folder of the device files.
        registry: registry and path of KAI's images.
        operator_namespace: namespace of the GPU Operator.
        operator_installed: whether the settings have a section of it, and do not turn it off.
        remote_gpu_frontends: whether nodes without a GPU advertise remote ones, by a device plugin.
        levels: a rule's name to its level, where it is not the usual one.
        accepted: the user's own exceptions that are in force.
        problem: what is wrong with the settings, if they were there but are not usable.
    """

    tegra_nodes: frozenset[str] = frozenset()
    labelled_nodes: frozenset[str] = frozenset()
    libraries: str = _LIBRARIES
    devices: str = _DEVICES
    registry: str = _REGISTRY
    operator_namespace: str = "gpu-operator"
    operator_installed: bool = False
    remote_gpu_frontends: bool = False
    levels: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[OwnException, ...] = ()
    problem: str | None = None

    @property
    def unknown_programs(self) -> str:
        """The level of images, commands and manifests that the update alone will know."""
        return self.levels.get(UNKNOWN_PROGRAMS, "advisory")

    @property
    def grants(self) -> bool:
        """Whether the platform grants anything."""
        return bool(self.tegra_nodes)

    def fragment(self) -> dict[str, object]:
        """Everything that a reservation pod may have on Tegra, by the platform table."""
        folders = (("nvidia-libs", self.libraries), ("dev-nvidia", self.devices))
        return {
            "spec": {
                "runtimeClassName": "nvidia",
                "volumes": [{"name": name, "hostPath": {"path": path, "type": "Directory"}} for name, path in folders],
                "containers": [
                    {
                        "name": RESERVATION_CONTAINER,
                        "env": [
                            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
                            {"name": "LD_LIBRARY_PATH", "value": self.libraries},
                        ],
                        "volumeMounts": [
                            {"name": "nvidia-libs", "mountPath": self.libraries, "readOnly": True},
                            {"name": "dev-nvidia", "mountPath": self.devices},
                        ],
                        "securityContext": {
                            "privileged": True,
                            "allowPrivilegeEscalation": True,
                            "runAsNonRoot": False,
                            "runAsUser": 0,
                        },
                    }
                ],
            }
        }

    def reservation_mutation(self) -> dict[str, object]:
        """The same as the admission server reads it, which says too to which pods it is added."""
        spec = dict_of(self.fragment()["spec"])
        container = dict_of(list_of(spec["containers"])[0])
        given = {
            "container": container["name"],
            **{key: spec[key] for key in ("runtimeClassName", "volumes")},
            **{key: container[key] for key in ("env", "volumeMounts", "securityContext")},
        }
        pods = {"namespace": RESERVATION, "labels": {"app": RESERVATION}, "nodeLabels": {PLATFORM_LABEL: TEGRA}}
        return {"pods": pods, "fragments": {"": given}}


def stack_facts(stack_settings: str | None, pack_config: Mapping[str, object]) -> StackFacts:
    """The stack's facts: from the pack's configuration, else from the stack's own settings, else none: strict x86.

    Args:
        stack_settings: the stack's settings as JSON; the engine hands them to a pack that is a folder, and none to
            `pulumi policy analyze` and to a pack that is an executable.
        pack_config: what `--policy-pack-config` says; JSON values.
    """
    return _both(stack_settings, json.dumps(dict(pack_config), sort_keys=True))


@functools.lru_cache(maxsize=8)
def _both(stack_settings: str | None, pack_config: str) -> StackFacts:
    config = json.loads(pack_config)
    said, problem = _said(stack_settings, config)
    settings = said | {section: config[section] for section in SECTIONS if section in config}
    facts = _facts(settings)
    # Whoever writes the configuration knows the cluster; a stack's file is changed by every pull request.
    other = [
        section
        for section in SECTIONS
        if section in config and section in said and _facts(settings | {section: said[section]}) != facts
    ]
    if other:
        problem = (
            f"the stack's file and the pack's configuration differ in {', '.join(other)}; the configuration applies"
        )
    levels = {rule: str(level) for rule, level in dict_of(config.get("levels")).items() if one_of(level, LEVELS)}
    return replace(facts, levels=levels, problem=problem or facts.problem)


def _said(stack_settings: str | None, config: Mapping[str, object]) -> tuple[dict[str, object], str | None]:
    if stack_settings is None:
        return dict_of(config.get("stack")), None
    try:
        settings = json.loads(stack_settings)
    except ValueError:
        return {}, "the stack's settings are not JSON"
    if not isinstance(settings, dict):
        return {}, "the stack's settings are not an object"
    return settings, None


def _facts(settings: Mapping[str, object]) -> StackFacts:
    platform = dict_of(settings.get("platform"))
    operator = dict_of(settings.get("gpu_operator"))
    libraries = text_of(platform.get("driver_library_path")) or _LIBRARIES
    devices = text_of(platform.get("device_path")) or _DEVICES
    problem = None
    # Settings cannot grant `/`: only folders where drivers and devices can lie.
    if not _LIBRARY_PATH.fullmatch(libraries) or ".." in libraries:
        problem, libraries = "driver_library_path is no library folder; the default is granted", _LIBRARIES
    if not _DEVICE_PATH.fullmatch(devices):
        problem, devices = "device_path is not below /dev; the default is granted", _DEVICES
    nodes: frozenset[str] = frozenset()
    match platform.get("kind"):
        case "tegra":
            nodes = frozenset(dict_of(platform.get("tegra_nodes")))
        case "x86" | None:
            pass
        case _:
            problem = "platform.kind is neither tegra nor x86; nothing is granted"
    overrides = dict_of(settings.get("reservation")).get("overrides") != "never"
    return StackFacts(
        tegra_nodes=nodes if overrides else frozenset(),
        labelled_nodes=nodes,
        libraries=libraries,
        devices=devices,
        registry=text_of(dict_of(dict_of(settings.get("kai")).get("images")).get("registry")) or _REGISTRY,
        operator_namespace=text_of(operator.get("namespace")) or "gpu-operator",
        operator_installed="gpu_operator" in settings and operator.get("install") is not False,
        remote_gpu_frontends=bool(dict_of(settings.get("gvirtus")).get("frontends")),
        problem=problem,
    )
