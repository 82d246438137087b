"""The pack's policies: few, since the SDK deserialises a resource anew for each of them."""

from collections.abc import Iterable

import pulumi
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from policy.exceptions import Exemption, exemptions
from policy.judge import judge
from policy.rule import Rule
from policy.rules import CLUSTER_RULES, POD_RULES, RULES
from policy.stack_platform import CONFIG_SCHEMA, STACK_CONFIG, STACK_CONFIG_KEY, StackFacts, stack_facts

PACK_NAME = "kai-anywhere"
_URL = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"


def policies() -> tuple[Policy, ...]:
    """Every policy of the pack."""
    return (
        _resource_policy("pod-privilege", "What runs in pods gets no power over its node", POD_RULES),
        _resource_policy("cluster-privilege", "What steers the cluster lets nobody take that power", CLUSTER_RULES),
        StackValidationPolicy(
            name="exceptions-in-use",
            display_name="Exceptions are needed",
            description="Every exception is still needed, and the stack's settings can be read.",
            enforcement_level=EnforcementLevel.MANDATORY,
            severity=Severity.MEDIUM,
            config_schema=PolicyConfigSchema(properties=CONFIG_SCHEMA),
            remediation_steps="Remove the exception from policy/exceptions.py, or repair the stack's settings.",
            url=_URL,
            validate=_exceptions_in_use,
        ),
    )


def _resource_policy(name: str, description: str, rules: tuple[Rule, ...]) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        judgement = judge(args.resource_type, args.name, args.props, _stack_of(args), rules)
        for finding in judgement.findings:
            report(finding.message(), None)

    return ResourceValidationPolicy(
        name=name,
        display_name=description,
        # The engine prints it with every finding.
        description=f"{description}.",
        enforcement_level=EnforcementLevel.MANDATORY,
        severity=Severity.CRITICAL,
        config_schema=PolicyConfigSchema(properties=CONFIG_SCHEMA),
        remediation_steps="Each finding names the field, what was found, why it matters and what to do.",
        url=_URL,
        validate=validate,
    )


def _stack_of(args: ResourceValidationArgs | StackValidationArgs) -> StackFacts:
    return stack_facts(pulumi.Config(STACK_CONFIG).get(STACK_CONFIG_KEY), args.get_config())


def _exceptions_in_use(args: StackValidationArgs, report: ReportViolation) -> None:
    stack = _stack_of(args)
    if stack.problem is not None:
        report(
            f"Settings of the stack: {stack.problem}. Repair them; the strict rule applies to what is missing.", None
        )
    judgements = [judge(each.resource_type, each.name, each.props, stack, RULES) for each in args.resources]
    used = {each for judgement in judgements for each in judgement.used}
    present = {each for judgement in judgements for each in judgement.present}
    for exemption in unused(stack, used, present):
        report(
            f"The exception for {exemption.kind} {exemption.name} ({exemption.what}) is not needed by this stack: "
            "remove it from policy/exceptions.py.",
            None,
        )


def unused(stack: StackFacts, used: Iterable[Exemption], present: Iterable[Exemption]) -> list[Exemption]:
    """Exceptions that nothing needs.

    Args:
        stack: the stack.
        used: exceptions that covered a finding.
        present: exceptions whose object is in the stack.
    """
    due = {each for each in exemptions(stack) if each.due} | set(present)
    return sorted(due - set(used), key=lambda each: (each.kind, each.name, each.path))
