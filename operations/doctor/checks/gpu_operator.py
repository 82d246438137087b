"""Checks of the GPU Operator and its operands."""

from collections.abc import Iterator

from cluster.pending import kubectl_says
from cluster.preflight.findings import helm_puts_back
from manifests.gpu_operator import DEVICE_PLUGIN, RELEASE
from manifests.node_labels import DEVICE_PLUGIN_CONFIG
from manifests.reservation import RUNTIME_CLASS
from manifests.tolerations import setting_for
from operations.doctor.check import Check, Finding, Severity, Subject, of_deployment, of_node
from operations.doctor.checks.workloads import judge_deployment, ready_nodes, remedy_of_deployment
from operations.doctor.facts import GPU_OPERATOR, DaemonSet, Facts, Source, names

_NFD_MASTER = "node-feature-discovery-master"
_OPERANDS = (
    "nvidia-container-toolkit-daemonset",
    "gpu-feature-discovery",
    "nvidia-operator-validator",
    "nvidia-driver-daemonset",
    "nvidia-dcgm-exporter",
    "nvidia-mig-manager",
)
_HELM = helm_puts_back(RELEASE, "{operator_namespace}")
_RESERVATION = frozenset({"KA0504", "KA0505", "KA0508", "KA0512", "KA0513", "KA0514"})


def _operator(facts: Facts) -> Iterator[Finding]:
    if facts.has_operator:
        yield from judge_deployment(
            facts, facts.operator_namespace, GPU_OPERATOR, role="The GPU Operator", missing=_HELM
        )


def _policy(facts: Facts) -> Iterator[Finding]:
    if facts.has_operator and not facts.cluster_policies and not facts.gpu_clusters:
        yield Finding(
            Subject("ClusterPolicy", "cluster-policy"),
            "There is no ClusterPolicy, so the GPU Operator makes no device plugin and no RuntimeClass.",
            ("ClusterPolicies (nvidia.com/v1): none",),
        )


def _runtime_class(facts: Facts) -> Iterator[Finding]:
    if any(policy.nri for policy in facts.cluster_policies):
        return
    classes = {RUNTIME_CLASS} if facts.kai_is_there or facts.has_operator else set()
    if facts.config is not None and facts.config.fraction_class is not None:
        classes = {facts.config.fraction_class} - {""}
    for name in sorted(classes - {runtime_class.name for runtime_class in facts.runtime_classes}):
        yield Finding(
            Subject("RuntimeClass", name),
            f"RuntimeClass '{name}' is missing: pods that name it are refused, KAI's fractions among them.",
            (f"RuntimeClasses: {names(facts.runtime_classes)}",),
        )


def _nri(facts: Facts) -> Iterator[Finding]:
    for policy in facts.cluster_policies:
        if policy.nri and facts.kai_is_there and not (facts.config and facts.config.fraction_class == ""):
            yield Finding(
                Subject("ClusterPolicy", policy.name, annotations=policy.annotations),
                "The GPU Operator is in NRI mode, which has no RuntimeClass; KAI gives its fractions one.",
                ("ClusterPolicy: spec.cdi.nriPluginEnabled=true", f"RuntimeClasses: {names(facts.runtime_classes)}"),
            )


def _plugin(facts: Facts) -> DaemonSet | None:
    return next((daemon_set for daemon_set in facts.daemon_sets if daemon_set.name == DEVICE_PLUGIN), None) or next(
        (
            daemon_set
            for daemon_set in facts.daemon_sets
            if "nvidia-device-plugin" in daemon_set.name and "mps" not in daemon_set.name
        ),
        None,
    )


def _no_plugin(facts: Facts) -> Iterator[Finding]:
    if not facts.gpu_nodes or any(policy.device_plugin is False for policy in facts.cluster_policies):
        return
    # Some distributions have it as a program of the host (Bottlerocket): what it advertises shows that it is there.
    if _plugin(facts) is None and not any(node.gpus or node.slices or node.time_slices for node in facts.gpu_nodes):
        daemon_sets = [
            daemon_set for daemon_set in facts.daemon_sets if daemon_set.namespace == facts.operator_namespace
        ]
        yield Finding(
            Subject("DaemonSet", DEVICE_PLUGIN, facts.operator_namespace),
            "NVIDIA's device plugin is missing: no node tells Kubernetes of its GPUs.",
            (
                f"DaemonSets in namespace {facts.operator_namespace}: {names(daemon_sets)}",
                f"GPU nodes: {', '.join(node.name for node in facts.gpu_nodes[:10])}",
            ),
        )


def _plugin_not_ready(facts: Facts) -> Iterator[Finding]:
    plugin = _plugin(facts)
    if plugin is None:
        return
    ready = ready_nodes(facts, plugin)
    pods = {pod.node: pod for pod in facts.pods_of(plugin)}
    for node in facts.gpu_nodes:
        if node.name in ready:
            continue
        pod = pods.get(node.name)
        seen = (
            f"Pod {pod.namespace}/{pod.name}: {kubectl_says(pod)}, not ready"
            if pod
            else f"no pod of DaemonSet {plugin.namespace}/{plugin.name} is on {node.name}"
        )
        off = [
            f"label {label}={node.labels.get(label, 'missing')}, and the DaemonSet selects {label}={value}"
            for label, value in plugin.node_selector.items()
            if node.labels.get(label) != value
        ]
        repelled = [] if pod else node.repels(plugin.tolerations)
        off += [f"taint {taint}, which the DaemonSet does not tolerate" for taint in repelled]
        if pod:
            said = facts.events_of("Pod", pod.namespace, pod.name)
            remedy = f"Read its log: kubectl --namespace {pod.namespace} logs {pod.name} --all-containers"
        elif off:
            said = ()
            remedy = _without_taints(facts, node.name, repelled) if repelled else ""
        else:
            # Such as a quota of the namespace, which refuses the pod.
            said = facts.events_of("DaemonSet", plugin.namespace, plugin.name)[-1:]
            remedy = (
                f"See why it has no pod there: kubectl --namespace {plugin.namespace} describe daemonset {plugin.name}"
            )
        yield Finding(
            Subject("Node", node.name, annotations=node.annotations),
            f"NVIDIA's device plugin does not run on node '{node.name}'.",
            (seen, *off, *said),
            about=frozenset({of_node(node.name), of_deployment(plugin.namespace, plugin.name)}),
            reach=frozenset({of_node(node.name)}),
            remedy=remedy,
        )


def _without_taints(facts: Facts, node: str, taints: list[str]) -> str:
    away = " ".join(f"{taint}-" for taint in taints)
    if facts.settings and facts.settings.gpu_operator.install:
        setting = setting_for(facts.settings.cluster, taints)
        tolerate = f"Or have the stack's pods tolerate it: {setting}, then pulumi up."
    else:
        tolerate = (
            "Or let the operator's pods tolerate it, with an entry more in spec.daemonsets.tolerations: kubectl edit "
            "clusterpolicies. Helm takes that back when the release changes."
        )
    return f"Take the taint away: kubectl taint node {node} {away}. {tolerate}"


def _discovery(facts: Facts) -> Iterator[Finding]:
    if not facts.has_operator:
        return
    masters = [deployment for deployment in facts.deployments if deployment.name.endswith(_NFD_MASTER)]
    for master in masters[:1]:
        yield from judge_deployment(facts, master.namespace, master.name, role="Node Feature Discovery")


def _gpu_clusters(facts: Facts) -> Iterator[Finding]:
    for gpu_cluster in facts.gpu_clusters:
        yield Finding(
            Subject("GPUCluster", gpu_cluster.name, annotations=gpu_cluster.annotations),
            f"GPUCluster '{gpu_cluster.name}' is there: the GPU Operator works with it or with a ClusterPolicy, which "
            "KAI needs, and with neither where both are there.",
            (f"ClusterPolicies: {names(facts.cluster_policies)}",),
        )


def _operands(facts: Facts) -> Iterator[Finding]:
    for daemon_set in facts.daemon_sets:
        if daemon_set.name in _OPERANDS and daemon_set.ready < daemon_set.desired:
            ready = ready_nodes(facts, daemon_set)
            waiting = sorted({pod.node for pod in facts.pods_of(daemon_set) if pod.node and pod.node not in ready})
            yield Finding(
                Subject("DaemonSet", daemon_set.name, daemon_set.namespace, daemon_set.annotations),
                f"DaemonSet {daemon_set.namespace}/{daemon_set.name} is ready on {daemon_set.ready} of "
                f"{daemon_set.desired} nodes.",
                tuple(f"not ready on {node}" for node in waiting[:5]),
                about=frozenset({of_deployment(daemon_set.namespace, daemon_set.name), *map(of_node, waiting)}),
                reach=frozenset(map(of_node, waiting)),
            )


def _profiles(facts: Facts) -> Iterator[Finding]:
    named = next((policy.profiles for policy in facts.cluster_policies if policy.profiles), "")
    if not named:
        return
    profiles = ", ".join(sorted(facts.profiles or ())) or "none"
    is_gone = f"ConfigMap/{facts.operator_namespace}/{named}" in (facts.missing or ())
    for node in facts.snapshot.nodes:
        profile = node.labels.get(DEVICE_PLUGIN_CONFIG)
        if profile is not None and profile not in (facts.profiles or ()):
            yield Finding(
                Subject("Node", node.name, annotations=node.annotations),
                f"node '{node.name}' asks for the device plugin's profile '{profile}', which is not there.",
                (
                    f"label {DEVICE_PLUGIN_CONFIG}={profile}",
                    f"ConfigMap {facts.operator_namespace}/{named} has: {profiles}",
                ),
                about=frozenset({of_node(node.name)}),
                reach=frozenset({of_node(node.name)}),
                remedy="Put that ConfigMap back: `kai-anywhere repair --stack {stack}`." if is_gone else "",
            )


def _unversioned(facts: Facts) -> Iterator[Finding]:
    if facts.config is None or facts.config.cdi is not None:
        return
    for policy in facts.cluster_policies:
        if policy.cdi is not False and not policy.labels.get("app.kubernetes.io/version"):
            yield Finding(
                Subject("ClusterPolicy", policy.name, annotations=policy.annotations),
                "The ClusterPolicy does not say the operator's version, so KAI takes CDI for switched off.",
                (f"labels of the ClusterPolicy: {', '.join(sorted(policy.labels)) or 'none'}",),
            )


def _state(facts: Facts) -> Iterator[Finding]:
    for policy in facts.cluster_policies:
        if policy.state and policy.state != "ready":
            conditions = [
                f"condition {condition.type}={condition.status}: {condition.message}"
                for condition in policy.conditions
                if condition.message
            ]
            yield Finding(
                Subject("ClusterPolicy", policy.name, annotations=policy.annotations),
                f"The GPU Operator says of its operands: {policy.state}.",
                (f"ClusterPolicy {policy.name}: status.state={policy.state}", *conditions),
            )


CHECKS = (
    Check(
        "KA0308",
        "A GPUCluster excludes the ClusterPolicy",
        _gpu_clusters,
        needs={Source.GPU_CLUSTERS, Source.CLUSTER_POLICIES},
        symptom="The operator's controllers report errors, and labels of nodes are not kept.",
        cause="GPUCluster is the GPU Operator's new way (DRA, a preview), and KAI reads the ClusterPolicy.",
        remedy="Ask whoever made it whether it may go: the GPUs of pods that claim them through it go with it. "
        "kubectl delete gpucluster {name}",
        source="GPU Operator v26.7.0 controllers/{clusterpolicy,gpucluster,nodelabeling}_controller.go",
        explains={"KA0302", "KA0303", "KA0305", "KA0312", "KA0403"},
    ),
    Check(
        "KA0301",
        "The GPU Operator does not run",
        _operator,
        needs={Source.DEPLOYMENTS, Source.CLUSTER_POLICIES},
        symptom="What of the operands is changed or removed is not put back; new nodes get no device plugin.",
        cause=f"Deployment `{GPU_OPERATOR}` is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(missing=_HELM),
        source="GPU Operator v26.7.0",
        explains={"KA0302", "KA0303", "KA0305", "KA0309", "KA0312", "KA0403"},
    ),
    Check(
        "KA0302",
        "There is no ClusterPolicy",
        _policy,
        needs={Source.CLUSTER_POLICIES, Source.DEPLOYMENTS, Source.GPU_CLUSTERS},
        symptom="The operator runs and makes nothing.",
        cause="The ClusterPolicy was deleted, or `clusterPolicy.deployCR` is false.",
        remedy=_HELM,
        source="GPU Operator v26.7.0 controllers/clusterpolicy_controller.go",
        explains={"KA0303", "KA0305", "KA0403"},
    ),
    Check(
        "KA0304",
        "The GPU Operator is in NRI mode",
        _nri,
        needs={Source.CLUSTER_POLICIES, Source.CONFIG, Source.RUNTIME_CLASSES},
        symptom="Pods with a fraction are refused, `RuntimeClass nvidia not found`, or start without a GPU.",
        cause="With `cdi.nriPluginEnabled` the operator removes the RuntimeClass by which KAI's fractions get a GPU.",
        remedy="Set cdi.nriPluginEnabled=false in the operator's values. Or, from KAI 0.18 on, set "
        'admission.gpuFractionRuntimeClassName="" in KAI\'s.',
        source="GPU Operator v26.7.0 controllers/state_manager.go; KAI #1544, #2211",
        explains=_RESERVATION | {"KA0303"},
    ),
    Check(
        "KA0303",
        "The RuntimeClass is missing",
        _runtime_class,
        needs={Source.RUNTIME_CLASSES, Source.CLUSTER_POLICIES, Source.CONFIG, Source.DEPLOYMENTS},
        symptom='`pods ... is forbidden: ... RuntimeClass "nvidia" not found`, for fractions and reservation pods.',
        cause="The GPU Operator makes it, and keeps it while it runs: it was deleted while the operator did not, or "
        "KAI's Config names another one.",
        remedy="Let the operator put it back: kubectl get pods --namespace {operator_namespace}, and KA0301. Without "
        "the operator, make a RuntimeClass {name} with the handler of your container runtime.",
        source="GPU Operator v26.7.0 controllers/object_controls.go; KAI v0.17.0 pkg/admission",
        explains=_RESERVATION | {"KA0309", "KA0403", "KA0306"},
    ),
    Check(
        "KA0305",
        "The device plugin is missing",
        _no_plugin,
        needs={Source.DAEMON_SETS, Source.NODES, Source.CLUSTER_POLICIES},
        symptom="Nodes advertise no `nvidia.com/gpu`; pods that ask for GPUs stay Pending.",
        cause="Its DaemonSet was deleted while the operator did not run, or nobody installed a device plugin.",
        remedy="Let the operator put it back (KA0301, KA0302).",
        source="GPU Operator v26.7.0 assets/state-device-plugin",
        explains={"KA0403", "KA0704", "KA0705", "KA0312", "KA0508", "KA0509"},
    ),
    Check(
        "KA0310",
        "A node asks for a profile that is not there",
        _profiles,
        needs={Source.NODES, Source.PROFILES, Source.CLUSTER_POLICIES, Source.DEPLOYMENTS},
        symptom="The device plugin's pod on that node does not start: `specified config ... does not exist`.",
        cause=f"The label `{DEVICE_PLUGIN_CONFIG}` names a key that the device plugin's ConfigMap does not have.",
        remedy="Add the profile under node_profiles of the stack, or with gpu_operator.install: false to that "
        f"ConfigMap; or correct the label, or remove it: kubectl label node {{name}} {DEVICE_PLUGIN_CONFIG}-",
        source="k8s-device-plugin v0.20.0 cmd/config-manager/main.go",
        explains={"KA0306", "KA0403"},
    ),
    Check(
        "KA0306",
        "The device plugin does not run on a GPU node",
        _plugin_not_ready,
        needs={Source.DAEMON_SETS, Source.NODES, Source.PODS},
        symptom="The node advertises no `nvidia.com/gpu`, or only what its kubelet remembers.",
        cause="Its pod fails there (driver, container runtime, profile), the node has a taint that the DaemonSet does "
        "not tolerate, or the DaemonSet does not select the node: an operand's switch is off, or the GPU Operator does "
        "not know that there is a GPU.",
        remedy="Read its log: kubectl --namespace {operator_namespace} logs --selector "
        "app=nvidia-device-plugin-daemonset --all-containers. On a Jetson nobody marks the GPU but this "
        "stack: list the node under platform.tegra_nodes.",
        source="k8s-device-plugin #1963, #1469; GPU Operator v26.7.0 controllers/state_manager.go",
        explains={"KA0403", "KA0309", "KA0312", "KA0508", "KA0509", "KA0513"},
    ),
    Check(
        "KA0307",
        "Node Feature Discovery does not run",
        _discovery,
        severity=Severity.WARNING,
        needs={Source.DEPLOYMENTS, Source.CLUSTER_POLICIES},
        symptom="New nodes are not known as GPU nodes, and labels that somebody removes do not come back.",
        cause="The Deployment of its master is scaled to 0 or has no pod that is ready.",
        remedy=remedy_of_deployment(missing=_HELM),
        source="Node Feature Discovery v0.19",
        explains={"KA0404", "KA0406"},
    ),
    Check(
        "KA0309",
        "An operand is not ready everywhere",
        _operands,
        severity=Severity.WARNING,
        needs={Source.DAEMON_SETS, Source.PODS},
        symptom="A DaemonSet of the GPU Operator is not ready on each of its nodes; other operands wait for it "
        "in init.",
        cause="Its pod fails there, or waits for the validator: after a reboot /run/nvidia/validations is empty for a "
        "while.",
        remedy="kubectl --namespace {namespace} describe daemonset {name}; after a reboot, delete the pods of the "
        "validator and of the toolkit on that node.",
        source="GPU Operator #403, #1982, #2382",
        explains={"KA0312"},
    ),
    Check(
        "KA0311",
        "KAI can't tell whether CDI is on",
        _unversioned,
        severity=Severity.WARNING,
        needs={Source.CLUSTER_POLICIES, Source.CONFIG},
        symptom="Workloads get bare UUIDs although the operator's runtime wants CDI names.",
        cause="KAI asks the ClusterPolicy's label `app.kubernetes.io/version`, which the chart sets and a "
        "ClusterPolicy "
        "of one's own lacks.",
        remedy="Say it: kai.cdi_enabled in the stack. Or label the ClusterPolicy with the operator's version.",
        source="KAI v0.17.0 pkg/operator/operands/binder/resources.go",
    ),
    Check(
        "KA0312",
        "The GPU Operator is not ready",
        _state,
        severity=Severity.WARNING,
        needs={Source.CLUSTER_POLICIES},
        symptom="`kubectl get clusterpolicy` shows `notReady`.",
        cause="At least one operand is not rolled out.",
        remedy="kubectl --namespace {operator_namespace} get pods shows which. If each of them runs, and "
        "gpu_operator.dcgm_exporter.service_monitor is true: install the Prometheus Operator, or set it to false.",
        source="GPU Operator v26.7.0 controllers/clusterpolicy_controller.go",
    ),
)
