"""Everything that a stack can say, and the one place where it is validated."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Self

from pydantic import AfterValidator, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from config.admission import AdmissionSettings, Webhook
from config.cluster import ClusterSettings
from config.gpu_operator import RUNTIME_MODE_VARIABLE, GpuOperatorSettings
from config.gvirtus import FRONTENDS_NAMESPACE, GvirtusSettings
from config.host_platform import check_hosts_of_platform, check_memory_is_known
from config.hosts import HostSettings, check_hosts
from config.installs import Installs
from config.kai import NOT_ON_SHARED_MEMORY, KaiSettings
from config.model import HIDDEN, Name, NodeName, Settings
from config.monitoring import MonitoringSettings
from config.platform import Platform, RuntimeMode, TegraPlatform, X86Platform
from config.pod_guard import PodGuardSettings
from config.reservation import POLICY_CARRIER_WAYS_OUT, Carrier, Overrides, Privilege, ReservationSettings
from config.sharing import NodeProfile, check_profiles
from config.validation import Validation

SETTINGS_KEY = "settings"
"""The configuration key of a stack's settings, `kai-anywhere:settings`."""
BASE_KEY = "base"
"""Beside it, the file that the settings build upon, `kai-anywhere:base` (config/bases.py)."""


class StackSettings(Settings):
    """The whole of a stack's settings."""

    cluster: ClusterSettings
    platform: Platform
    """The kind of GPU nodes, which decides which other keys are allowed."""
    hosts: Annotated[dict[NodeName, HostSettings], AfterValidator(check_hosts)] = {}
    """Machines that `pulumi up` prepares before everything else, by node name (docs/hosts.md). Without any, the
    machines are left alone."""
    installs: Installs = Installs.EVERYTHING
    reservation: ReservationSettings = ReservationSettings()
    pod_guard: PodGuardSettings = PodGuardSettings()
    gpu_operator: GpuOperatorSettings = GpuOperatorSettings()
    kai: KaiSettings = KaiSettings()
    admission: AdmissionSettings = AdmissionSettings()
    node_profiles: Annotated[dict[Name, NodeProfile], AfterValidator(check_profiles)] = {}
    """How the pods of a node share its GPUs, by the profile's name. Nodes in no profile are shared in fractions by
    KAI."""
    gvirtus: GvirtusSettings | None = None
    """GPUs over the network, for pods on nodes without one (docs/gvirtus.md)."""
    monitoring: MonitoringSettings = MonitoringSettings()
    validation: Validation = Validation.NONE

    @model_validator(mode="after")
    def _the_cluster_serves_policies(self) -> Self:
        if self.cluster.policies_version is not None:
            return self
        for section in self.policy_carriers:
            raise PydanticCustomError(
                "carrier_needs_newer_cluster",
                "{section}.carrier 'policy' needs Kubernetes 1.36 or later (MutatingAdmissionPolicy v1); "
                "cluster.kubernetes_version is {version}. {ways_out}",
                {
                    "section": section,
                    "version": self.cluster.kubernetes_version,
                    "ways_out": POLICY_CARRIER_WAYS_OUT[section],
                },
            )
        return self

    @model_validator(mode="after")
    def _overrides_have_nodes_to_apply_to(self) -> Self:
        if self.reservation.overrides is Overrides.ALWAYS and isinstance(self.platform, X86Platform):
            raise PydanticCustomError(
                "overrides_without_tegra",
                "reservation.overrides 'always' in an x86 stack: a privileged reservation pod sees every GPU of its "
                "node and refuses to work ('found N devices, 1 was expected'). Use auto or never.",
            )
        return self

    @model_validator(mode="after")
    def _privilege_is_of_jetsons(self) -> Self:
        keys = self.reservation.model_fields_set & {"privilege", "privilege_by_node", "supplemental_groups"}
        if keys and isinstance(self.platform, X86Platform):
            raise PydanticCustomError(
                "privilege_without_tegra",
                "reservation.{key} in an x86 stack: its reservation pods get nothing beyond what KAI gives them. "
                "Remove reservation.{key}.",
                {"key": min(keys)},
            )
        for node in self.reservation.privilege_by_node:
            if node not in self.platform.jetsons:
                raise PydanticCustomError(
                    "privilege_of_unknown_node",
                    "reservation.privilege_by_node has '{node}', which is not listed under platform.tegra_nodes. There "
                    "are: {nodes}. Correct the name, or list the node.",
                    {"node": node, "nodes": ", ".join(sorted(self.platform.jetsons))},
                )
        if self.reservation.supplemental_groups and {*self.privileges.values()} == {Privilege.PRIVILEGED}:
            raise PydanticCustomError(
                "groups_of_root",
                "reservation.supplemental_groups is set, and every Jetson's reservation pod is privileged: it runs as "
                "root, which needs no groups. Remove it, or set reservation.privilege to devices or none.",
                {},
            )
        return self

    @model_validator(mode="after")
    def _hosts_fit_the_platform(self) -> Self:
        check_hosts_of_platform(self.hosts, self.platform, self.cluster, operator_installs=self.gpu_operator.install)
        if not self.hosts_alone:
            check_memory_is_known(self.hosts, self.platform)
        return self

    @model_validator(mode="after")
    def _the_operators_runtime_understands_kai(self) -> Self:
        if not self.kai.writes_bare_uuids:
            return self
        modes = {
            "platform.container_runtime_mode": self.platform.operator_runtime_mode.value,
            f"gpu_operator.toolkit_env.{RUNTIME_MODE_VARIABLE}": self.gpu_operator.toolkit_env.get(
                RUNTIME_MODE_VARIABLE
            ),
        }
        for key, mode in modes.items():
            if mode == RuntimeMode.CDI:
                raise PydanticCustomError(
                    "bare_uuids_in_cdi_mode",
                    "kai.cdi_enabled is false, so KAI asks for GPUs by bare UUIDs; {key} is 'cdi', in which the "
                    "operator's runtime resolves none of them ('unresolvable CDI devices'). Remove {key}, which then "
                    "is auto, or kai.cdi_enabled.",
                    {"key": key},
                )
        return self

    @model_validator(mode="after")
    def _somebody_knows_the_names_that_kai_writes(self) -> Self:
        if self.kai.cdi_enabled and not self.gpu_operator.cdi:
            raise PydanticCustomError(
                "cdi_names_without_cdi",
                "kai.cdi_enabled is true, so KAI asks for GPUs by CDI names; gpu_operator.cdi is false, and then "
                "nobody makes these names ('unresolvable CDI devices'). Remove kai.cdi_enabled, or gpu_operator.cdi.",
            )
        return self

    @model_validator(mode="after")
    def _every_gpu_can_hold_pods_to_their_memory(self) -> Self:
        if not self.kai.enforces_memory:
            return self
        shared = dict.fromkeys(self.platform.jetsons, "platform.tegra_nodes")
        shared |= dict.fromkeys(self.platform.unified_memory_nodes, "platform.unified_memory_nodes")
        for node, where in shared.items():
            raise PydanticCustomError(
                "memory_not_enforceable",
                "kai.gpu_sharing_mode '{mode}' is for every node of the cluster, and '{node}' ({where}) can't have it: "
                "{why}. Use non_memory_enforced, or give the nodes with discrete GPUs a cluster of their own.",
                {
                    "mode": self.kai.gpu_sharing_mode.value,
                    "node": node,
                    "where": where,
                    "why": NOT_ON_SHARED_MEMORY[self.kai.gpu_sharing_mode],
                },
            )
        return self

    @model_validator(mode="after")
    def _frontends_have_no_gpu(self) -> Self:
        if self.gvirtus is None or self.gvirtus.frontends is None:
            return self
        with_gpu = dict.fromkeys(self.platform.unified_memory_nodes, "platform.unified_memory_nodes")
        with_gpu |= {
            node: f"node_profiles.{name}" for name, profile in self.node_profiles.items() for node in profile.nodes
        }
        if not isinstance(self.platform, X86Platform):
            with_gpu |= dict.fromkeys(self.platform.tegra_nodes, "platform.tegra_nodes")
        for node in self.gvirtus.frontends.nodes:
            if node in with_gpu:
                raise PydanticCustomError(
                    "frontend_with_gpu",
                    "gvirtus.frontends.nodes has '{node}', which is listed under {where} and so has a GPU: two device "
                    "plugins would take turns there. Remove one entry.",
                    {"node": node, "where": with_gpu[node]},
                )
        return self

    @model_validator(mode="after")
    def _every_part_has_a_namespace_of_its_own(self) -> Self:
        taken = {
            **dict.fromkeys(("default", "kube-system", "kube-public", "kube-node-lease"), "the cluster itself"),
            FRONTENDS_NAMESPACE: "the frontends' device plugin",
            "kai-resource-reservation": "KAI's reservation pods",
        }
        claimed = {"kai.namespace": (self.kai.namespace, "KAI")}
        if self.gpu_operator.install:
            claimed["gpu_operator.namespace"] = (self.gpu_operator.namespace, "the GPU Operator")
        else:
            taken[self.gpu_operator.namespace] = "the GPU Operator"
        if self.webhooks:
            claimed["admission.namespace"] = (self.admission.namespace, "the admission server")
        if self.gvirtus is not None:
            claimed["gvirtus.namespace"] = (self.gvirtus.namespace, "remote GPUs")
        if self.monitoring.enabled:
            claimed["monitoring.namespace"] = (self.monitoring.namespace, "the exporter of metrics")
        for key, (namespace, part) in claimed.items():
            if (other := taken.setdefault(namespace, part)) != part:
                raise PydanticCustomError(
                    "namespace_taken",
                    "{key} '{namespace}' is the namespace of {owner}. Choose one of its own.",
                    {"key": key, "namespace": namespace, "owner": other},
                )
        return self

    @model_validator(mode="after")
    def _backends_have_a_place(self) -> Self:
        if self.gvirtus is None:
            return self
        for name, backend in self.gvirtus.backends.items():
            if backend.node is None and backend.node_selector is None and not self.gpu_operator.install:
                raise PydanticCustomError(
                    "backend_place",
                    "gvirtus.backends.{name} has no node and no node_selector, and nodes with a GPU are detected by "
                    "the GPU Operator's NFD, which this stack does not install. Set one of them.",
                    {"name": name},
                )
        return self

    @model_validator(mode="after")
    def _the_admission_server_has_an_image(self) -> Self:
        if self.webhooks and self.admission.image is None:
            raise PydanticCustomError(
                "admission_image",
                "a carrier is 'webhook' ({webhooks}), so the admission server is installed, but admission.image is not "
                "set. Build it with agents/Containerfile, push it, and write its reference there. Or let the API "
                "server do it: Kubernetes 1.36 or later does, and 1.34 and 1.35 do with cluster.mutating_policies: "
                "v1beta1, once it is switched on there (docs/distributions.md).",
                {
                    "webhooks": ", ".join(
                        f"{webhook}.carrier{self._why_the_webhook(webhook)}" for webhook in self.webhooks
                    )
                },
            )
        return self

    @property
    def hosts_alone(self) -> bool:
        """Whether the stack prepares hosts, and another one installs what the cluster gets."""
        return self.installs is Installs.HOSTS

    @property
    def webhooks(self) -> tuple[Webhook, ...]:
        """What the admission server carries in this stack; empty where it is not installed."""
        return tuple(Webhook(section) for section, carrier in self._carriers.items() if carrier is Carrier.WEBHOOK)

    @property
    def policy_carriers(self) -> tuple[str, ...]:
        """Sections whose changes of pods are carried by a MutatingAdmissionPolicy."""
        return tuple(section for section, carrier in self._carriers.items() if carrier is Carrier.POLICY)

    @property
    def _carriers(self) -> dict[str, Carrier]:
        """What carries the changes of pods, by section, where there are any; `auto` is decided."""
        carriers: dict[str, Carrier] = {}
        if self.hosts_alone:
            return carriers
        if self.overrides_apply:
            carriers["reservation"] = self.reservation.carrier
        if self.gvirtus is not None:
            carriers["gvirtus"] = self.gvirtus.carrier
        chosen = Carrier.WEBHOOK if self.cluster.policies_version is None else Carrier.POLICY
        return {section: chosen if carrier is Carrier.AUTO else carrier for section, carrier in carriers.items()}

    def _why_the_webhook(self, webhook: Webhook) -> str:
        """What is added to a section's name where the settings do not say 'webhook' themselves."""
        section = self.reservation if webhook is Webhook.RESERVATION else self.gvirtus
        if section is None or section.carrier is not Carrier.AUTO:
            return ""
        return f": auto, with cluster.kubernetes_version {self.cluster.kubernetes_version}"

    @property
    def overridden_platform(self) -> TegraPlatform | None:
        """The platform whose reservation pods are changed at admission; None where none are."""
        if self.reservation.overrides is Overrides.NEVER or not isinstance(self.platform, TegraPlatform):
            return None
        return self.platform

    @property
    def privileges(self) -> dict[str, Privilege]:
        """The rung of each node whose reservation pods are changed at admission, by name; empty without overrides."""
        nodes = self.platform.jetsons if self.overrides_apply else {}
        return {
            node: self.reservation.privilege_by_node.get(node, self.reservation.privilege) for node in sorted(nodes)
        }

    @property
    def overrides_apply(self) -> bool:
        """Whether reservation pods of Tegra nodes are changed at admission."""
        return self.overridden_platform is not None


class StackConfigError(Exception):
    """A stack's settings are wrong; the text names file, key, value and what is allowed."""


def secret_in_settings(file: str) -> StackConfigError:
    """The error of settings of which a part was stored by `pulumi config set --secret`."""
    return StackConfigError(
        f"{file}: a secret stands inside of kai-anywhere:{SETTINGS_KEY}, where nothing is one: it would be written in "
        "plain text into Pulumi's state and the cluster. Nothing was changed.\n"
        "Set it again without --secret. Secrets of hosts have keys of their own (docs/hosts.md)."
    )


def parse_settings(
    settings_json: str | None,
    *,
    file: str,
    other_keys: Iterable[str] = (),
    top_level_keys: Iterable[str] = (),
    origin: Callable[[Sequence[str | int]], str | None] | None = None,
) -> StackSettings:
    """Validate a stack's settings.

    Args:
        settings_json: the value of `kai-anywhere:settings` as JSON, or None if the key is absent.
        file: the stack file's name, for the message; with those of its bases.
        other_keys: what else stands in the stack file in plain text below `kai-anywhere:`, without that prefix.
        top_level_keys: what stands there beside `config:`.
        origin: the file of a setting by its key, where the settings are of several files.

    Raises:
        StackConfigError: if anything in it is not allowed.
    """
    other_keys = tuple(other_keys)
    if misplaced := sorted(set(top_level_keys) & set(StackSettings.model_fields)):
        raise StackConfigError(
            f"{file}: {', '.join(misplaced)} at the beginning of a line is not a setting of this program. Nothing was "
            f"changed.\nIndent it by four spaces, below kai-anywhere:{SETTINGS_KEY}."
        )
    if settings_json is None and SETTINGS_KEY in other_keys:
        raise StackConfigError(
            f"{file}: the key kai-anywhere:{SETTINGS_KEY} is empty, so the stack has no settings.\n"
            "Indent what belongs to it by four spaces, below the key."
        )
    if settings_json is None:
        raise StackConfigError(
            f"{file}: the key kai-anywhere:{SETTINGS_KEY} is missing, so the stack has no settings.\n"
            "Copy it from Pulumi.jetson.yaml or Pulumi.x86.yaml and edit the nodes."
            + "".join(f"\nIs kai-anywhere:{key} meant for it?" for key in get_close_matches(SETTINGS_KEY, other_keys))
        )
    try:
        settings = StackSettings.model_validate_json(settings_json)
    except ValidationError as error:
        # A list that seems empty because its items are wrong is no second mistake.
        problems = [
            item for item in error.errors(include_url=False) if item["type"] != "too_short" or not item["input"]
        ]
        count = "1 setting is" if len(problems) == 1 else f"{len(problems)} settings are"
        lines = [f"{file}: {count} wrong. Nothing was changed."]
        lines += [line for problem in problems for line in _explain(problem, origin)]
        raise StackConfigError("\n".join(lines)) from None
    secrets = {name for host in settings.hosts.values() for name in host.secret_names}
    if unknown := sorted(set(other_keys) - {SETTINGS_KEY, BASE_KEY} - secrets):
        raise StackConfigError(
            f"{file}: nothing reads {', '.join(f'kai-anywhere:{key}' for key in unknown)}. Nothing was changed.\n"
            f"Move what belongs to the settings below kai-anywhere:{SETTINGS_KEY}, or remove it: pulumi config rm "
            f"{unknown[0]}"
        )
    return settings


_A_MAPPING = "must be a mapping: `key: value` lines, indented below this key"
_A_LIST = "must be a list: `- item` lines below this key, or [item]"
_COLLECTIONS = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _A_MAPPING),
    **dict.fromkeys(("tuple_type", "list_type"), _A_LIST),
}
_EMPTY = "empty: indent what belongs to this key below it, write {} or [] for nothing at all, or remove the key"
_NUMBER = re.compile(r"[-+]?[0-9]+([.][0-9]+)?")
_A_JETSON = {"jetson": ". A Jetson is 'tegra'"}


def _explain(problem: ErrorDetails, origin: Callable[[Sequence[str | int]], str | None] | None) -> Sequence[str]:
    parts, value = _parts(problem["loc"]), problem["input"]
    key = ".".join([SETTINGS_KEY, *map(str, parts)])
    wrong_key = problem.get("ctx", {}).get("key") if problem["type"] in {"unknown_key", "removed_key"} else None
    place = origin([*parts, *filter(None, [wrong_key])]) if origin else None
    hidden = problem["type"] in {"missing", HIDDEN} or isinstance(value, dict | list)
    match problem["type"]:
        case "missing":
            reason = "required, but missing"
        case "union_tag_not_found":
            reason = (
                f"the key {problem['ctx']['discriminator']} is required here: it decides which other keys are allowed"
            )
        case "union_tag_invalid":
            key = f"{key}.{problem['ctx']['discriminator']}".replace("'", "")
            value, hidden = problem["ctx"]["tag"], False
            reason = f"must be one of {problem['ctx']['expected_tags']}" + _A_JETSON.get(value, "")
        case "too_short" if not value:
            reason = f"at least {problem['ctx']['min_length']} item is required, but there is none"
        case kind if kind.endswith("_type") and value is None:
            hidden = True
            reason = _EMPTY if kind in _COLLECTIONS else "empty: write a value, or remove the key"
        case _:
            reason = _of_one_value(problem)
    value_line = [] if hidden else [f"    found:   {value!r}"]
    return [
        f"  kai-anywhere:{key}",
        *([f"    file:    {place}"] if place else []),
        *value_line,
        f"    problem: {reason}",
    ]


def _of_one_value(problem: ErrorDetails) -> str:  # noqa: PLR0911 - one for each kind
    value, said = problem["input"], problem["msg"]
    match problem["type"]:
        case "int_type" | "float_type" if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return f"{said}: write digits alone, without a unit and without separators"
        case "int_type" | "float_type" | "bool_type" if isinstance(value, str):
            as_type = problem["type"].removesuffix("_type")
            what = "true or false" if as_type == "bool" else "it"
            # Pulumi (3.259) keeps a value's quotes when it is set again, whatever --type says.
            return (
                f"{said}: write {what} without quotes; with Pulumi, run pulumi config rm --path, then "
                f"pulumi config set --path with --type {as_type}"
            )
        case kind if kind in _COLLECTIONS:
            return _COLLECTIONS[kind]
        case "string_type" if isinstance(value, dict | list):
            return "must be a text"
        case "string_type":
            return f"{said}: put it in quotes; pulumi config set --path does so with --type string"
        case "string_pattern_mismatch" if "://" in value:
            return f"{said}: leave out {value.partition('//')[0]}//"
        case _:
            return said


def _parts(location: tuple[int | str, ...]) -> list[str | int]:
    """Pydantic's location as the path that stands in the file: without union tags and key markers."""
    parts = [part for part in location if part != "[key]"]
    if parts[:1] == ["platform"] and len(parts) > 1:
        del parts[1]
    if parts[:2] == ["admission", "certificates"] and len(parts) > 2:  # noqa: PLR2004 - two keys, tag
        del parts[2]
    if parts[:1] == ["node_profiles"] and len(parts) > 2:  # noqa: PLR2004 - section, profile, tag
        del parts[2]
    return parts
