"""What the stack's platform grants, read from the stack's own settings or the pack's configuration."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pod_checks import table
from policy.own_exceptions import OwnException
from policy.reading import dict_of, list_of, one_of, text_of

STACK_CONFIG = "kai-anywhere"
"""Project whose configuration holds the settings of a stack."""
STACK_CONFIG_KEY = "settings"

RESERVATION = "kai-resource-reservation"
"""Namespace, app label and service account of KAI's reservation pods (KAI v0.17.0)."""
RESERVATION_CONTAINER = "resource-reservation"
OVERRIDES = "kai-anywhere-reservation-overrides"
"""The admission policy that adds to reservation pods on Tegra nodes; with a rung behind it where nodes differ."""
SERVER_SETTINGS = ("data", "settings.json")
RESERVATION_MUTATION = ("mutations", "reservation")
"""Where the admission server's ConfigMap holds the same for the carrier `webhook`. The server adds it to nothing but
reservation pods on Tegra nodes, which the document itself names."""
PLATFORM_LABEL = "kai-anywhere.io/platform"
TEGRA = "tegra"
PRIVILEGED, DEVICES, NONE = RUNGS = ("privileged", "devices", "none")
"""How much a reservation pod may have, the most powerful first; `none` is nothing that needs a grant."""

_REGISTRY = "ghcr.io/kai-scheduler/kai-scheduler"
"""Where KAI's images are unless the stack says otherwise (KAI v0.17.0, values.yaml)."""
_LIBRARIES = "/usr/lib/aarch64-linux-gnu/nvidia"
_DEVICES = "/dev"
_LIBRARY_PATH = re.compile(r"/(usr/(local/)?lib|opt)(/[\w.+-]+)+")
_DEVICE_PATH = re.compile(r"/dev(/[\w-]+)*")

SECTIONS = ("installs", "platform", "reservation", "gpu_operator", "kai", "gvirtus")
"""The keys of a stack's settings that the pack reads."""
UNKNOWN_PROGRAMS = "unknown-programs"
"""Stands for a rule's name where `levels` says what an unknown image, command or manifest is."""
LEVELS = frozenset({"mandatory", "advisory", "disabled"})

CONFIG_SCHEMA: dict[str, dict[str, object]] = {
    "installs": {
        "type": "string",
        "description": "the stack's `installs`; `hosts` has nothing in a cluster, and nothing is granted",
    },
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
        tegra_nodes: nodes whose reservation pods are changed; empty means that nothing is granted.
        rung: how much a reservation pod may have.
        rungs: the same of a single node, where it is another one.
        labelled_nodes: nodes that may carry the platform label: the same, also where overrides are off.
        libraries: host folders of the driver's libraries.
        node_libraries: the same of Tegra nodes that have their own.
        devices: host folder of the device files.
        registry: registry and path of KAI's images.
        operator_namespace: namespace of the GPU Operator.
        operator_installed: whether the settings have a section of it, and do not turn it off.
        nv_fractions: whether KAI takes the annotations of NvFractions.
        remote_gpu_frontends: whether nodes without a GPU advertise remote ones, by a device plugin.
        levels: a rule's name to its level, where it is not the usual one.
        accepted: the user's own exceptions that are in force.
        problem: what is wrong with the settings, if they were there but are not usable.
    """

    tegra_nodes: frozenset[str] = frozenset()
    rung: str = PRIVILEGED
    rungs: Mapping[str, str] = field(default_factory=dict)
    labelled_nodes: frozenset[str] = frozenset()
    libraries: tuple[str, ...] = (_LIBRARIES,)
    node_libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices: str = _DEVICES
    registry: str = _REGISTRY
    operator_namespace: str = "gpu-operator"
    operator_installed: bool = False
    nv_fractions: bool = False
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
        """Whether the platform grants power over a node to anything."""
        return any(self.rung_of(node) != NONE for node in self.tegra_nodes)

    def rung_of(self, node: str) -> str:
        """The rung of a Tegra node."""
        return self.rungs.get(node, self.rung)

    def libraries_of(self, node: str) -> tuple[str, ...]:
        """The host folders of a Tegra node's driver libraries."""
        return self.node_libraries.get(node, self.libraries)

    @property
    def overrides(self) -> dict[str, frozenset[str]]:
        """The admission policies that change reservation pods, by name, each with its nodes: one for each rung."""
        nodes: dict[str, frozenset[str]] = {}
        for node in self.tegra_nodes:
            rung = self.rung_of(node)
            name = OVERRIDES if rung == self.rung else f"{OVERRIDES}-{rung}"
            nodes[name] = nodes.get(name, frozenset()) | {node}
        return nodes

    def fragment(self, node: str) -> dict[str, object]:
        """Everything that a reservation pod may have on a Tegra node, by the platform table."""
        rung, libraries = self.rung_of(node), self.libraries_of(node)
        volumes: list[dict[str, object]] = []
        container: dict[str, object] = {
            "name": RESERVATION_CONTAINER,
            "env": [
                {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
                {"name": "LD_LIBRARY_PATH", "value": ":".join(libraries)},
            ],
        }
        mounts: list[dict[str, object]] = []
        if rung in {PRIVILEGED, DEVICES}:
            for number, path in enumerate(libraries, 1):
                name = f"nvidia-libs-{number}" if number > 1 else "nvidia-libs"
                volumes.append(_folder(name, path))
                mounts.append({"name": name, "mountPath": path, "readOnly": True})
        if rung == PRIVILEGED:
            volumes.append(_folder("dev-nvidia", self.devices))
            mounts.append({"name": "dev-nvidia", "mountPath": self.devices})
            container["securityContext"] = {
                "privileged": True,
                "allowPrivilegeEscalation": True,
                "runAsNonRoot": False,
                "runAsUser": 0,
            }
        if volumes:
            container["volumeMounts"] = mounts
        spec = {"runtimeClassName": "nvidia", "containers": [container]}
        return {"spec": spec | ({"volumes": volumes} if volumes else {})}

    def reservation_mutation(self) -> dict[str, object]:
        """The same as the admission server reads it, which says too to which pods it is added.

        Groups are left out: they are no power over a node, and no rule asks for them.
        """
        by_node = {node: self._name(node) for node in self.tegra_nodes}
        fragments = {name: self._given(node) for node, name in by_node.items()}
        pods = {"namespace": RESERVATION, "labels": {"app": RESERVATION}, "nodeLabels": {PLATFORM_LABEL: TEGRA}}
        if len(fragments) == 1:
            return {"pods": pods, "fragments": {"": next(iter(fragments.values()))}}
        return {"pods": pods, "fragments": fragments, "byNode": by_node}

    def _name(self, node: str) -> str:
        return ":".join((self.rung_of(node), *self.libraries_of(node)))

    def _given(self, node: str) -> dict[str, object]:
        spec = dict_of(self.fragment(node)["spec"])
        container = dict_of(list_of(spec["containers"])[0])
        return {
            "container": container["name"],
            **{key: spec[key] for key in ("runtimeClassName", "volumes") if key in spec},
            **{key: container[key] for key in ("env", "volumeMounts", "securityContext") if key in container},
        }


def _folder(name: str, path: str) -> dict[str, object]:
    return {"name": name, "hostPath": {"path": path, "type": "Directory"}}


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
    declared, problem = _declared(stack_settings, config)
    settings = declared | {section: config[section] for section in SECTIONS if section in config}
    facts = _facts(settings)
    # Whoever writes the configuration knows the cluster; a stack's file is changed by every pull request.
    different = [
        section
        for section in SECTIONS
        if section in config and section in declared and _facts(settings | {section: declared[section]}) != facts
    ]
    if different:
        problem = (
            f"the stack's file and the pack's configuration differ in {', '.join(different)}; the configuration applies"
        )
    levels = {rule: str(level) for rule, level in dict_of(config.get("levels")).items() if one_of(level, LEVELS)}
    return replace(facts, levels=levels, problem=problem or facts.problem)


def _declared(stack_settings: str | None, config: Mapping[str, object]) -> tuple[dict[str, object], str | None]:
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
    if settings.get("installs") == "hosts":
        return StackFacts()
    platform = dict_of(settings.get("platform"))
    operator = dict_of(settings.get("gpu_operator"))
    libraries = text_of(platform.get("driver_library_path")) or _LIBRARIES
    devices = text_of(platform.get("device_path")) or _DEVICES
    problem = None
    # Settings cannot grant `/`: only folders where drivers and devices can lie.
    if not _is_library_folder(libraries):
        problem, libraries = "driver_library_path is no library folder; the default is granted", _LIBRARIES
    if not _DEVICE_PATH.fullmatch(devices):
        problem, devices = "device_path is not below /dev; the default is granted", _DEVICES
    nodes: frozenset[str] = frozenset()
    declared: dict[str, tuple[str, ...]] = {}
    match platform.get("kind"):
        case "tegra":
            nodes = frozenset(dict_of(platform.get("tegra_nodes")))
            declared, foreign = _declared_libraries(dict_of(platform.get("tegra_nodes")))
            problem = foreign or problem
        case "x86" | None:
            pass
        case _:
            problem = "platform.kind is neither tegra nor x86; nothing is granted"
    reservation = dict_of(settings.get("reservation"))
    overrides = reservation.get("overrides") != "never"
    privileges = {"": reservation.get("privilege", PRIVILEGED)} | dict_of(reservation.get("privilege_by_node"))
    rungs = {node: text_of(rung) if one_of(rung, frozenset(RUNGS)) else NONE for node, rung in privileges.items()}
    if rungs != privileges:
        problem = f"reservation.privilege is not one of {', '.join(RUNGS)}; nothing is granted there"
    return StackFacts(
        tegra_nodes=nodes if overrides else frozenset(),
        rung=rungs.pop(""),
        rungs=rungs,
        labelled_nodes=nodes,
        libraries=(libraries,),
        node_libraries=declared,
        devices=devices,
        registry=text_of(dict_of(dict_of(settings.get("kai")).get("images")).get("registry")) or _REGISTRY,
        operator_namespace=text_of(operator.get("namespace")) or "gpu-operator",
        operator_installed="gpu_operator" in settings and operator.get("install") is not False,
        nv_fractions=dict_of(settings.get("kai")).get("gpu_sharing_mode") == table.NV_FRACTIONS,
        remote_gpu_frontends=bool(dict_of(settings.get("gvirtus")).get("frontends")),
        problem=problem,
    )


def _declared_libraries(nodes: Mapping[str, object]) -> tuple[dict[str, tuple[str, ...]], str | None]:
    """The folders of nodes that have their own, and what is wrong with one of them."""
    declared: dict[str, tuple[str, ...]] = {}
    problem = None
    for node, settings in nodes.items():
        folders = tuple(text_of(folder) for folder in list_of(dict_of(settings).get("driver_library_paths")))
        if all(map(_is_library_folder, folders)):
            declared |= {node: folders} if folders else {}
        else:
            problem = f"driver_library_paths of {node} has what is no library folder; the platform's is granted there"
    return declared, problem


def _is_library_folder(path: str) -> bool:
    return _LIBRARY_PATH.fullmatch(path) is not None and ".." not in path
