"""Checks of KAI's control plane."""

import json
import re
from collections.abc import Callable, Iterator, Mapping

from cluster.preflight.findings import helm_puts_back
from config.kai import GpuSharingMode
from manifests.kai import MODES, QUEUE_CONTROLLER, RELEASE
from operations.doctor.check import Check, Finding, Severity, Subject
from operations.doctor.checks.workloads import judge_deployment, remedy_of_deployment
from operations.doctor.facts import KAI_OPERATOR, Facts, Source
from operations.doctor.requests import asks_for_share

_PENDING = frozenset({"KA0704", "KA0705", "KA0706"})
_OPERANDS = frozenset({"KA0204", "KA0205", "KA0206", "KA0207", "KA0208", "KA0209", "KA0210", "KA0905"})
_SUPPORTED = (0, 18)
"""The oldest release line with support: upstream's SUPPORT.md, 2026-09."""
_HELM = helm_puts_back(RELEASE, "{kai_namespace}")
_LEFT = (
    "Helm has no note of KAI. If it was removed, its Config was left, whose webhooks refuse queues and KAI's pods: "
    "kai-anywhere rollback --stack {stack} removes what this stack left. If it is to run, install it: `pulumi up`."
)
_OPERATOR_MAKES_IT = (
    f"KAI's operator makes it: see kubectl --namespace {{kai_namespace}} logs deployment/{KAI_OPERATOR}"
)
_IMAGE_TAG = re.compile(r":v?(\d+)\.(\d+)")


def config_put_back(spec: Mapping[str, object]) -> str:
    """The remedy where KAI's Config is not what the stack's settings make of it.

    Helm changes what differs from its last release, and does not look at what somebody edited since.

    Args:
        spec: what the settings make of the fields that are wrong.
    """
    patch = json.dumps({"spec": spec}, separators=(",", ":"))
    return (
        "The stack's settings say otherwise. Where they are newer than the last run, run `pulumi up`. Else somebody "
        "edited the Config, which no run puts back: kubectl patch config.kai.scheduler {name} --type merge "
        f"--patch '{patch}'"
    )


def _not_installed(facts: Facts) -> Iterator[Finding]:
    if not facts.kai_is_there:
        by_helm = any(release.name == RELEASE and release.revisions for release in facts.releases)
        yield Finding(
            Subject("Deployment", KAI_OPERATOR, facts.kai_namespace),
            "KAI is not installed: there is neither its operator's Deployment nor its Config.",
            (f"no Deployment {KAI_OPERATOR} in any namespace", "no Config kai-config (kai.scheduler/v1)"),
            remedy=_HELM if by_helm else "",
        )


def _operator(facts: Facts) -> Iterator[Finding]:
    if facts.kai_is_there:
        by_helm = any(release.name == RELEASE and release.revisions for release in facts.releases)
        missing = _HELM if by_helm or Source.RELEASES in facts.unseen else _LEFT
        yield from judge_deployment(facts, facts.kai_namespace, KAI_OPERATOR, role="KAI's operator", missing=missing)


def _config(facts: Facts) -> Iterator[Finding]:
    if facts.kai_is_there and facts.config is None:
        yield Finding(
            Subject("Config", "kai-config"),
            "KAI's Config kai-config is missing, so its operator makes nothing.",
            (f"Configs (kai.scheduler/v1): {', '.join(config.name for config in facts.configs) or 'none'}",),
        )


def _operand(section: str, name: str, role: str) -> Callable[[Facts], Iterator[Finding]]:
    def judge(facts: Facts) -> Iterator[Finding]:
        if facts.config is not None and facts.config.is_on(section):
            yield from judge_deployment(facts, facts.kai_namespace, name, role=role, missing=_OPERATOR_MAKES_IT)

    return judge


def _scheduler(facts: Facts) -> Iterator[Finding]:
    if facts.config is None or not facts.config.is_on("scheduler"):
        return
    for shard in facts.shards:
        role = "KAI's scheduler" + (f" of shard '{shard.name}'" if len(facts.shards) > 1 else "")
        name = f"{facts.scheduler_name}-{shard.name}"
        yield from judge_deployment(facts, facts.kai_namespace, name, role=role, missing=_OPERATOR_MAKES_IT)


def _conditions(facts: Facts) -> Iterator[Finding]:
    for condition in facts.config.conditions if facts.config else ():
        if condition.type in {"Deployed", "Available", "DependenciesFulfilled"} and condition.status == "False":
            yield Finding(
                Subject("Config", "kai-config", annotations=facts.config.annotations if facts.config else {}),
                f"KAI's operator says of its own work: {condition.type} is False.",
                (f"condition {condition.type}={condition.status} ({condition.reason}): {condition.message}",),
            )


def _no_shard(facts: Facts) -> Iterator[Finding]:
    if facts.config is not None and not facts.shards:
        yield Finding(
            Subject("SchedulingShard", "default"),
            "There is no SchedulingShard, so KAI's operator makes no scheduler.",
            ("SchedulingShards (kai.scheduler/v1): none",),
        )


def _kinds_missing(facts: Facts) -> Iterator[Finding]:
    if not facts.kai_is_there:
        return
    for kind in (
        "scheduling.run.ai/v2/queues",
        "scheduling.run.ai/v2alpha2/podgroups",
        "scheduling.run.ai/v1alpha2/bindrequests",
        "kai.scheduler/v1/schedulingshards",
    ):
        if kind not in facts.kinds:
            version, _, plural = kind.rpartition("/")
            group = version.partition("/")[0]
            yield Finding(
                Subject("CustomResourceDefinition", f"{plural}.{group}"),
                f"The API server does not know KAI's kind {plural}.{group} in version {version.partition('/')[2]}.",
            )


def _sharing_off(facts: Facts) -> Iterator[Finding]:
    config = facts.config
    if config is None:
        return
    off = config.sharing_mode == "Disabled" or (not config.sharing_mode and config.sharing is False)
    intended = facts.settings is not None and facts.settings.kai.gpu_sharing_mode is GpuSharingMode.DISABLED
    sharing_pods = [pod for pod in facts.snapshot.pods if asks_for_share(pod) and not pod.ended]
    if off and not intended and (sharing_pods or facts.settings is not None):
        setting = "gpuSharingMode=Disabled" if config.sharing_mode else "admission.gpuSharing=false"
        remedy = ""
        if facts.settings is not None:
            mode = MODES[facts.settings.kai.gpu_sharing_mode]
            remedy = config_put_back(
                {"global": {"gpuSharingMode": mode}} if config.sharing_mode else {"admission": {"gpuSharing": True}}
            )
        yield Finding(
            Subject("Config", config.name, annotations=config.annotations),
            "KAI shares no GPUs: its Config switches fractions off.",
            (f"Config kai-config: {setting}", f"pods that ask for a share: {len(sharing_pods)}"),
            remedy=remedy,
        )


def _several(facts: Facts) -> Iterator[Finding]:
    operators = [deployment for deployment in facts.deployments if deployment.name == KAI_OPERATOR]
    for operator in operators[1:]:
        yield Finding(
            Subject("Deployment", operator.name, operator.namespace, operator.annotations),
            f"KAI is installed twice: its operator is in {operators[0].namespace} and in {operator.namespace}.",
            tuple(f"Deployment {one.namespace}/{one.name}" for one in operators),
        )


def _unsupported(facts: Facts) -> Iterator[Finding]:
    operator = facts.deployment(facts.kai_namespace, KAI_OPERATOR)
    for container in operator.containers if operator else ():
        tag = _IMAGE_TAG.search(container.image)
        if tag and operator and (int(tag[1]), int(tag[2])) < _SUPPORTED:
            yield Finding(
                Subject("Deployment", KAI_OPERATOR, facts.kai_namespace, operator.annotations),
                f"KAI {tag[1]}.{tag[2]} has no support any more.",
                (f"image {container.image}",),
            )


def _operand_check(  # noqa: PLR0913, PLR0917 - what differs between operands
    code: str,
    section: str,
    name: str,
    role: str,
    symptom: str,
    explains: frozenset[str],
    severity: Severity = Severity.ERROR,
) -> Check:
    return Check(
        code,
        f"{role} does not run",
        _operand(section, name, role),
        severity=severity,
        needs={Source.DEPLOYMENTS, Source.CONFIG},
        symptom=symptom,
        cause=f"Deployment `{name}` is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(missing=f"{_OPERATOR_MAKES_IT}."),
        source="KAI v0.17.0 pkg/operator/operands",
        explains=explains,
    )


CHECKS = (
    Check(
        "KA0201",
        "KAI is not installed",
        _not_installed,
        needs={Source.DEPLOYMENTS, Source.CONFIG},
        symptom="Pods with `schedulerName: kai-scheduler` stay Pending without an event.",
        cause="The stack was never installed in this cluster, or KAI was removed from it.",
        remedy="Install the stack: `pulumi up`. If KAI should be here, check that this is the right context.",
        source="KAI v0.17.0 deployments/kai-scheduler",
        explains=_PENDING | {"KA0105", "KA0601", "KA0603", "KA0515"},
    ),
    Check(
        "KA0212",
        "A kind of KAI's is missing",
        _kinds_missing,
        needs={Source.KINDS, Source.DEPLOYMENTS, Source.CONFIG},
        symptom="KAI's pods end with `no matches for kind`, and its objects can't be read.",
        cause="A CustomResourceDefinition was deleted; with it all its objects went.",
        remedy="Apply the chart's definitions: helm show crds CHART --version VERSION | kubectl apply --server-side "
        "-f -, with the chart and the version that helm list --namespace {kai_namespace} shows. Then put the queues "
        "back: `kai-anywhere repair --stack {stack}`.",
        source="KAI v0.17.0 deployments/kai-scheduler/crds",
        explains=_PENDING | {"KA0105", "KA0203", "KA0211", "KA0601"},
    ),
    Check(
        "KA0202",
        "KAI's operator does not run",
        _operator,
        needs={Source.DEPLOYMENTS, Source.CONFIG},
        symptom="Changes to KAI's objects are not reverted, and changes to its Config have no effect.",
        cause=f"Deployment `{KAI_OPERATOR}` is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(missing=_HELM),
        source="KAI v0.17.0 cmd/operator",
        explains=_OPERANDS | _PENDING,
    ),
    Check(
        "KA0203",
        "KAI's Config is missing",
        _config,
        needs={Source.CONFIG, Source.DEPLOYMENTS},
        symptom="KAI's operator runs, and there is no scheduler, binder or webhook.",
        cause="The Config `kai-config` is no object of the Helm release: a hook makes it after the install. It was "
        "deleted, or the hook did not run.",
        remedy=_HELM,
        source="KAI v0.17.0 deployments/kai-scheduler/templates/hooks/post/kai-config-deployer",
        explains=_OPERANDS | _PENDING | {"KA0211"},
    ),
    Check(
        "KA0211",
        "There is no SchedulingShard",
        _no_shard,
        needs={Source.SHARDS, Source.CONFIG, Source.KINDS},
        symptom="Every pod for KAI stays Pending, and there is no scheduler's Deployment.",
        cause="The chart's shard `default` was deleted.",
        remedy=_HELM,
        source="KAI v0.17.0 deployments/kai-scheduler/templates/default-shard.yaml",
        explains=_PENDING | {"KA0105"},
    ),
    Check(
        "KA0204",
        "KAI's scheduler does not run",
        _scheduler,
        needs={Source.DEPLOYMENTS, Source.CONFIG, Source.SHARDS},
        symptom="Pods for KAI stay Pending, without an event and without a word why.",
        cause="The scheduler's Deployment is scaled to 0, is missing, or has no pod that is ready.",
        remedy=remedy_of_deployment(missing=f"{_OPERATOR_MAKES_IT}."),
        source="KAI v0.17.0 pkg/operator/operands/scheduler",
        explains=_PENDING | {"KA0210"},
    ),
    _operand_check(
        "KA0205",
        "binder",
        "binder",
        "KAI's binder",
        "The scheduler chooses nodes and nothing is bound: BindRequests stay without a phase, pods stay Pending.",
        _PENDING | {"KA0210", "KA0508", "KA0510", "KA0515", "KA0518"},
    ),
    _operand_check(
        "KA0206",
        "podGrouper",
        "pod-grouper",
        "KAI's pod grouper",
        "New pods for KAI get no PodGroup, and the scheduler does not see them: Pending without an event.",
        frozenset({"KA0706", "KA0210"}),
    ),
    _operand_check(
        "KA0207",
        "podGroupController",
        "podgroup-controller",
        "KAI's pod group controller",
        "The status of PodGroups does not follow; their webhook refuses changes.",
        frozenset({"KA0210", "KA0901"}),
        Severity.WARNING,
    ),
    _operand_check(
        "KA0208",
        "queueController",
        QUEUE_CONTROLLER,
        "KAI's queue controller",
        "Queues can't be made or changed: their webhook does not answer.",
        frozenset({"KA0210", "KA0602", "KA0901"}),
    ),
    _operand_check(
        "KA0209",
        "admission",
        "admission",
        "KAI's admission",
        "Pods for KAI are refused with `failed calling webhook`; pods made before get no GPU from their fraction.",
        frozenset({"KA0210", "KA0702", "KA0901", "KA0905"}),
    ),
    Check(
        "KA0210",
        "KAI's Config is not well",
        _conditions,
        severity=Severity.WARNING,
        needs={Source.CONFIG},
        symptom="`kubectl get config.kai.scheduler kai-config -o yaml` has a condition that is False.",
        cause="The condition says it: an operand that is not deployed or available, or a dependency that is missing.",
        remedy="Do what the condition says; the operator tries again by itself.",
        source="KAI v0.17.0 pkg/apis/kai/v1/config_types.go",
    ),
    Check(
        "KA0213",
        "KAI shares no GPUs",
        _sharing_off,
        needs={Source.CONFIG, Source.PODS},
        symptom="Pods with `gpu-fraction` or `gpu-memory` are refused: fractions are disabled.",
        cause="`global.gpuSharingMode` is Disabled, or with KAI 0.17 `global.gpuSharing` is false, its default there.",
        remedy="With this program, kai.gpu_sharing_mode says it. With Helm alone, set "
        "global.gpuSharingMode=NonMemoryEnforced (0.18) or global.gpuSharing=true (0.17).",
        source="KAI v0.17.0 and v0.18 values.yaml",
        explains={"KA0702"},
    ),
    Check(
        "KA0214",
        "KAI is installed twice",
        _several,
        needs={Source.DEPLOYMENTS},
        symptom="GPUs are promised twice, and two operators take turns on the same objects.",
        cause="KAI was installed under a second name or in a second namespace; its Config is one for the cluster.",
        remedy="Ask who installed each: helm list --all-namespaces names the releases. Whoever owns the one that is "
        "not needed removes it, after its pods have ended.",
        source="KAI v0.17.0 deployments/kai-scheduler: the Config is cluster-scoped",
    ),
    Check(
        "KA0215",
        "KAI is a release without support",
        _unsupported,
        severity=Severity.WARNING,
        needs={Source.DEPLOYMENTS, Source.CONFIG},
        symptom="Defects that newer releases have fixed: duplicate reservation pods (before 0.16), reservation "
        "pods that "
        "tolerate no taints (before 0.17), limits that HAMi-core does not get (0.17).",
        cause="Even minors have support for a year, odd ones until the next minor: 0.17 ended in September 2026.",
        remedy="Upgrade: docs/upgrade.md says how, and what to look at before.",
        source="KAI SUPPORT.md; #1673, #522, #2157",
    ),
)
