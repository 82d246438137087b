"""Whether a job that calls one of our workflows fits to it, as GitHub would check it."""

from typing import Any

from tests.unit.workflows.files import FOLDER, TRIGGERS, content

_KINDS: dict[str, type | tuple[type, ...]] = {"string": str, "boolean": bool, "number": (int, float)}


def objections(called: str, job: dict[str, Any]) -> list[str]:
    """What GitHub would refuse, or what would not reach the workflow.

    Args:
        called: the workflow's name.
        job: of the caller, with `uses`.
    """
    workflow = content(FOLDER / "workflows" / f"{called}.yml")
    accepted = workflow[TRIGGERS]["workflow_call"] or {}
    inputs, secrets = accepted.get("inputs", {}), accepted.get("secrets", {})
    said, handed = job.get("with", {}), job.get("secrets", {})
    problems = [f"no input {name!r}" for name in said if name not in inputs]
    problems += [f"no secret {name!r}" for name in handed if name not in secrets]
    problems += [
        f"input {name!r} is missing"
        for name, declared in inputs.items()
        if declared.get("required") and name not in said
    ]
    problems += [
        f"input {name!r} is no {inputs[name]['type']}"
        for name, value in said.items()
        if name in inputs and not _is_expression(value) and not isinstance(value, _KINDS[inputs[name]["type"]])
    ]
    # An environment's secret is read by a called workflow only where the caller names it.
    problems += [f"secret {name!r} is not handed on" for name in secrets if name not in handed]
    problems += [
        f"secret {name!r} is another one" for name, value in handed.items() if value != f"${{{{ secrets.{name} }}}}"
    ]
    allowed = job.get("permissions", {})
    needed = {
        scope: access for inner in workflow["jobs"].values() for scope, access in inner.get("permissions", {}).items()
    }
    problems += [
        f"{scope}: {access} is not allowed" for scope, access in needed.items() if allowed.get(scope) != access
    ]
    problems += [f"{scope} is allowed and not needed" for scope in allowed if scope not in needed]
    return problems


def _is_expression(value: object) -> bool:
    """Whether GitHub finds out the value, with its type, when it runs."""
    return isinstance(value, str) and value.startswith("${{ fromJSON(") and value.endswith("}}")
