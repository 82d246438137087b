"""Random valid settings of whole stacks: values of every field, and then what the rules between settings ask for.

Each function below makes one rule of `config/` hold, mostly by taking away what breaks it. A rule that none of them
knows shows itself: `tests/properties/test_settings.py` takes no stack that is refused.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from config.charts import release_line
from config.cluster import POLICIES_SINCE, minor_version
from config.kai import DEFAULT_PARENT_QUEUE, DEFAULT_QUEUE, MODES_SINCE, GpuSharingMode
from config.stack import StackSettings
from testbed.stacks import Json
from tests.properties.values import Values, of_model

_SECTIONS = 6
"""How many each stack has beside those that it must have. Hypothesis gives up what is larger: with all of them at hand
it said few and small ones, and remote GPUs in one stack of 40."""
_IMAGE = "registry.example.com/kai-anywhere/agents:0.1.0"


@cache
def stacks(kind: str | None = None) -> Values:
    """Settings as JSON.

    Args:
        kind: the platform's, or any.
    """
    whole = of_model(StackSettings, _SECTIONS)
    if kind is not None:
        whole = whole.filter(lambda stack: stack["platform"]["kind"] == kind)
    return whole.map(fitting)


def fitting(stack: Json) -> Json:
    """The stack without what its other settings do not allow; it is changed in place."""
    # What is said as null is said as little as what is not said; files have both.
    for rule in _RULES:
        rule(stack)
    return stack


def _section(stack: Json, *path: str) -> Json:
    """A section, empty where the stack has none; changes of that one are lost."""
    section: Any = stack
    for key in path:
        section = (section or {}).get(key)
    return section or {}


def _installs(stack: Json) -> None:
    """Hosts alone without a host register nothing."""
    if not stack.get("hosts"):
        stack.pop("installs", None)


def _cluster(stack: Json) -> None:
    cluster = stack["cluster"]
    version = cluster.get("kubernetes_version")
    if version is not None and minor_version(version) < POLICIES_SINCE["v1beta1"]:
        cluster.pop("mutating_policies", None)
    if cluster["distribution"] != "k8s-snap":
        cluster.pop("containerd_base_dir", None)


def _platform(stack: Json) -> None:
    platform = stack["platform"]
    for node in platform.get("tegra_nodes", {}):
        platform.get("unified_memory_nodes", {}).pop(node, None)
    for declared in platform.get("tegra_nodes", {}).values():
        if folders := declared.get("driver_library_paths"):
            declared["driver_library_paths"] = list(dict.fromkeys(folders))


def _hosts(stack: Json) -> None:
    hosts, addresses, local = stack.get("hosts", {}), set(), False
    for node, host in list(hosts.items()):
        ssh = host.get("ssh")
        host["local"] = ssh is None
        for endpoint in filter(None, [ssh, (ssh or {}).get("bastion")]):
            _login(endpoint)
        at = ssh and (ssh["address"], ssh.get("port", 22), str(_where(ssh.get("bastion"))))
        if not host.get("gone") and (at in addresses if ssh else local):
            del hosts[node]
            continue
        addresses |= {at} if ssh and not host.get("gone") else set()
        local |= ssh is None and not host.get("gone")
        if not _section(host, "docker").get("configure"):
            _section(host, "docker").pop("default_runtime", None)
        timeouts = _section(host, "timeouts")
        if timeouts and 2 * timeouts.get("restart_seconds", 180) >= timeouts.get("configure_seconds", 900):
            timeouts |= {"restart_seconds": 10, "configure_seconds": max(30, timeouts.get("configure_seconds", 900))}
        if (host.get("distribution") or stack["cluster"]["distribution"]) != "k3s":
            host.pop("images", None)
        _owner(stack, node, _section(host, "toolkit"))


def _where(bastion: Json | None) -> object:
    return bastion and (bastion["address"], bastion.get("port", 22))


def _login(endpoint: Json) -> None:
    if endpoint.get("password_secret") is not None:
        endpoint.pop("private_key_secret", None)
        endpoint.pop("private_key_password_secret", None)
    elif endpoint.get("private_key_secret") is None:
        endpoint["private_key_secret"] = "lab-key"


def _owner(stack: Json, node: str, toolkit: Json) -> None:
    platform = stack["platform"]
    installs = _section(stack, "gpu_operator").get("install", True)
    owner = toolkit.get("owner")
    if node in platform.get("tegra_nodes", {}):
        fits = owner in {None, platform.get("container_toolkit", "host")}
    else:
        fits = owner != "host" or not installs
    if not fits:
        del toolkit["owner"]


def _memory(stack: Json) -> None:
    for section in ("tegra_nodes", "unified_memory_nodes"):
        for node, declared in stack["platform"].get(section, {}).items():
            host = stack.get("hosts", {}).get(node)
            if declared.get("gpu_memory_mib") is None and (host is None or host.get("gone")):
                declared["gpu_memory_mib"] = 57344


def _reservation(stack: Json) -> None:
    reservation, nodes = _section(stack, "reservation"), stack["platform"].get("tegra_nodes", {})
    if not nodes:
        if reservation.get("overrides") == "always":
            del reservation["overrides"]
        for key in ("privilege", "privilege_by_node", "supplemental_groups"):
            reservation.pop(key, None)
        return
    said = reservation.get("privilege_by_node", {})
    for node in said.keys() - nodes.keys():
        del said[node]
    rungs = {said.get(node, reservation.get("privilege", "privileged")) for node in nodes}
    if rungs == {"privileged"} and reservation.get("overrides") != "never":
        reservation.pop("supplemental_groups", None)


def _guard(stack: Json) -> None:
    guard = _section(stack, "pod_guard")
    if guard.get("scope") != "cluster":
        guard.pop("exempt_namespaces", None)


def _pull_secrets(stack: Json) -> None:
    of_charts = [_section(stack, name, "images") for name in ("kai", "gpu_operator")]
    for section in (*of_charts, *(_section(stack, name) for name in ("admission", "gvirtus", "monitoring"))):
        if secrets := section.get("pull_secrets"):
            section["pull_secrets"] = list(dict.fromkeys(secrets))


def _charts(stack: Json) -> None:
    for section in ("kai", "gpu_operator"):
        chart = _section(stack, section, "chart")
        if (chart.get("source") or "").startswith(("/", ".")):
            chart.pop("version", None)


def _kai(stack: Json) -> None:
    kai = _section(stack, "kai")
    platform = stack["platform"]
    if mode := kai.get("gpu_sharing_mode"):
        since = MODES_SINCE.get(GpuSharingMode(mode))
        line = release_line(_section(kai, "chart").get("version"))
        shared = platform.get("tegra_nodes") or platform.get("unified_memory_nodes")
        if since is not None and (shared or (line is not None and line < since)):
            del kai["gpu_sharing_mode"]
    modes = {
        platform.get("container_runtime_mode")
        if platform["kind"] == "x86" or platform.get("container_toolkit") == "operator"
        else None,
        _section(stack, "gpu_operator", "toolkit_env").get("NVIDIA_CONTAINER_RUNTIME_MODE"),
    }
    if kai.get("cdi_enabled") is False and "cdi" in modes:
        del kai["cdi_enabled"]
    if kai.get("cdi_enabled") and not _section(stack, "gpu_operator").get("cdi", True):
        del kai["cdi_enabled"]


def _queues(stack: Json) -> None:
    kai = _section(stack, "kai")
    queues: Json = kai.get("queues", {})
    built_in = {DEFAULT_PARENT_QUEUE, DEFAULT_QUEUE} if kai.get("default_queue", True) else set()
    for name in built_in & queues.keys():
        del queues[name]
    for name, queue in queues.items():
        for share in (_section(queue, resource) for resource in ("gpu", "cpu", "memory")):
            limit, quota = share.get("limit", -1), share.get("quota", 0)
            if limit != -1 and (quota == -1 or quota > limit):
                share["quota"] = limit
        others = [*(queue for queue in queues if queue < name), *sorted(built_in)]
        if queue.get("parent") is not None:
            # A smaller name: no circle.
            queue["parent"] = others[len(queue["parent"]) % len(others)] if others else None


def _profiles(stack: Json) -> None:
    profiles, seen = stack.get("node_profiles", {}), set()
    profiles.pop("default", None)
    for name, profile in list(profiles.items()):
        profile["nodes"] = [node for node in profile["nodes"] if node not in seen]
        seen |= set(profile["nodes"])
        if not profile["nodes"]:
            del profiles[name]


def _gvirtus(stack: Json) -> None:
    gvirtus = stack.get("gvirtus")
    if not gvirtus:
        return
    if gvirtus.get("default_backend") is not None:
        gvirtus["default_backend"] = next(iter(gvirtus["backends"]))
    for backend in gvirtus["backends"].values():
        if backend.get("node") is not None:
            backend.pop("node_selector", None)
        elif backend.get("node_selector") is None and not _section(stack, "gpu_operator").get("install", True):
            backend["node"] = "gpu-1.example.com"
    if frontends := gvirtus.get("frontends"):
        with_gpu = {backend.get("node") for backend in gvirtus["backends"].values()}
        for section in ("tegra_nodes", "unified_memory_nodes"):
            with_gpu |= stack["platform"].get(section, {}).keys()
        for profile in stack.get("node_profiles", {}).values():
            with_gpu |= set(profile["nodes"])
        free = [node for node in dict.fromkeys(frontends["nodes"]) if node not in with_gpu]
        frontends["nodes"] = free or ["without-gpu"]


def _carriers(stack: Json) -> None:
    cluster = stack["cluster"]
    version = cluster.get("kubernetes_version")
    served = (
        cluster.get("mutating_policies") is not None
        or version is None
        or minor_version(version) >= POLICIES_SINCE["v1"]
    )
    carriers = []
    for section in ("reservation", "gvirtus"):
        said = _section(stack, section)
        if not served and said.get("carrier") == "policy":
            del said["carrier"]
        if section == "reservation" or said:
            carriers.append(said.get("carrier", "auto"))
    if "webhook" in carriers or not served:
        admission = stack.setdefault("admission", {})
        admission["image"] = admission.get("image") or _IMAGE


def _certificates(stack: Json) -> None:
    certificates = _section(stack, "admission", "certificates")
    if certificates.get("kind") == "own":
        least = max(60, 6 * certificates.get("propagation_seconds", 30))
        certificates["lifetime_seconds"] = max(least, certificates.get("lifetime_seconds", least))
    if authorities := certificates.get("authorities"):
        certificates["authorities"] = list(dict.fromkeys(authorities))


def _monitoring(stack: Json) -> None:
    monitoring = _section(stack, "monitoring")
    if monitoring.get("enabled") and monitoring.get("image") is None:
        monitoring["image"] = _IMAGE
    if not monitoring.get("service_monitor"):
        monitoring.pop("service_monitor_labels", None)


def _namespaces(stack: Json) -> None:
    taken = {
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "gvirtus-frontends",
        "kai-resource-reservation",
    }
    defaults = {
        "kai": "kai-scheduler",
        "gpu_operator": "gpu-operator",
        "admission": "kai-anywhere",
        "gvirtus": "gvirtus-system",
        "monitoring": "kai-anywhere-monitoring",
    }
    taken |= set(defaults.values())
    for section, default in defaults.items():
        said = _section(stack, section)
        if said.get("namespace") not in {None, default}:
            if said["namespace"] in taken:
                del said["namespace"]
            else:
                taken.add(said["namespace"])


_RULES: tuple[Callable[[Json], None], ...] = (
    _installs,
    _cluster,
    _platform,
    _hosts,
    _memory,
    _reservation,
    _guard,
    _pull_secrets,
    _charts,
    _kai,
    _queues,
    _profiles,
    _gvirtus,
    _carriers,
    _certificates,
    _monitoring,
    _namespaces,
)


def said(settings: Any) -> Iterator[tuple[str, str, object]]:  # noqa: ANN401 - a model, or what its fields hold
    """Every field that settings say, with its model's name and its value."""
    match settings:
        case dict():
            for value in settings.values():
                yield from said(value)
        case list() | tuple():
            for value in settings:
                yield from said(value)
        case _ if hasattr(settings, "model_fields_set"):
            for name in settings.model_fields_set:
                value = getattr(settings, name)
                yield type(settings).__name__, name, value
                yield from said(value)
        case _:
            pass
