"""The pack's policies: few, since the SDK deserialises a resource anew for each of them."""

from collections.abc import Iterable
from dataclasses import replace

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

from policy import own_exceptions
from policy.exceptions import Exemption, exemptions
from policy.judge import judge
from policy.rules import RULES
from policy.stack_platform import (
    CONFIG_SCHEMA,
    STACK_CONFIG,
    STACK_CONFIG_KEY,
    UNKNOWN_PROGRAMS,
    StackFacts,
    stack_facts,
)
from policy.workloads import has_unknown

PACK_NAME = "kai-anywhere"
_NAMES = frozenset(rule.name for rule in RULES)
_URL = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"
PRIVILEGE = "privilege"
ADVICE = "advice"


def policies() -> tuple[Policy, ...]:
    """Every policy of the pack."""
    return (
        _resource_policy(
            PRIVILEGE, "Nothing gets power over a node or the cluster", EnforcementLevel.MANDATORY, Severity.CRITICAL
        ),
        _resource_policy(
            ADVICE, "Nothing runs that only the update will know", EnforcementLevel.ADVISORY, Severity.LOW
        ),
        StackValidationPolicy(
            name="exceptions-in-use",
            display_name="Exceptions are needed",
            description="Every exception is still needed, and the stack's settings can be read.",
            enforcement_level=EnforcementLevel.MANDATORY,
            severity=Severity.MEDIUM,
            config_schema=PolicyConfigSchema(properties=CONFIG_SCHEMA),
            remediation_steps="Remove or renew the exception where it stands, or repair the stack's settings.",
            url=_URL,
            validate=_exceptions_in_use,
        ),
    )


def _resource_policy(
    name: str, description: str, level: EnforcementLevel, severity: Severity
) -> ResourceValidationPolicy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        stack = _stack_of(args, args.urn)
        rules = [rule for rule in RULES if level_of(rule.name, stack) == level.value]
        if stack.unknown_programs == level.value and has_unknown(args.resource_type, args.props):
            rules += [rule for rule in RULES if rule.programs and rule not in rules]
        for finding in judge(args.resource_type, args.name, args.props, stack, rules).findings if rules else ():
            own = stack.unknown_programs if finding.unknown_program else level_of(finding.rule, stack)
            if own == level.value:
                report(finding.message(), None)

    return ResourceValidationPolicy(
        name=name,
        display_name=description,
        # The engine prints it with every finding.
        description=f"{description}.",
        enforcement_level=level,
        severity=severity,
        config_schema=PolicyConfigSchema(properties=CONFIG_SCHEMA),
        remediation_steps="Each finding names the field, what was found, why it matters and what to do.",
        url=_URL,
        validate=validate,
    )


def level_of(rule: str, stack: StackFacts) -> str:
    """What a finding of a rule is: mandatory, unless the pack's configuration says another level."""
    return stack.levels.get(rule, EnforcementLevel.MANDATORY.value)


def _stack_of(args: ResourceValidationArgs | StackValidationArgs, urn: str) -> StackFacts:
    config = args.get_config()
    facts = stack_facts(pulumi.Config(STACK_CONFIG).get(STACK_CONFIG_KEY), config)
    try:
        own = own_exceptions.parse(config["exceptions"], "exceptions", _NAMES) if "exceptions" in config else None
        accepted = own_exceptions.of_file(_NAMES) if own is None else own
    except ValueError as error:
        return replace(facts, problem=str(error))
    unknown = sorted(facts.levels.keys() - _NAMES - {UNKNOWN_PROGRAMS})
    problem = f"levels: there is no rule {', '.join(unknown)}" if unknown else facts.problem
    # urn:pulumi:STACK::...
    name = urn.partition("urn:pulumi:")[2].partition("::")[0]
    for_stack = tuple(exception for exception in accepted if not exception.stacks or name in exception.stacks)
    return replace(facts, accepted=for_stack, problem=problem)


def _exceptions_in_use(args: StackValidationArgs, report: ReportViolation) -> None:
    stack = _stack_of(args, args.resources[0].urn if args.resources else "")
    if stack.problem is not None:
        report(
            f"Settings of the stack: {stack.problem}. Repair them; the strict rule applies to what is missing.", None
        )
    judgements = [
        judge(resource.resource_type, resource.name, resource.props, stack, RULES) for resource in args.resources
    ]
    used = {exception for judgement in judgements for exception in judgement.used}
    present = {exemption for judgement in judgements for exemption in judgement.present}
    for exemption in unused(stack, used, present):
        report(
            f"The exception for {exemption.kind} {exemption.name} ({exemption.what}) is not needed by this stack: "
            "remove it from policy/exceptions.py.",
            None,
        )
    for own in stack.accepted:
        if own.is_over():
            report(f"{own} ended on {own.until}: repair the object, or agree on a new date.", None)
        elif own not in used:
            report(f"{own} is not needed by this stack: remove it, or name its stacks in `stacks`.", None)


def unused(stack: StackFacts, used: Iterable[object], present: Iterable[Exemption]) -> list[Exemption]:
    """Exceptions of this repository that nothing needs.

    Args:
        stack: the stack.
        used: exceptions that covered a finding.
        present: exceptions whose object is in the stack.
    """
    due = {exemption for exemption in exemptions(stack) if exemption.due} | set(present)
    return sorted(due - set(used), key=lambda exemption: (exemption.kind, exemption.name, exemption.path))
