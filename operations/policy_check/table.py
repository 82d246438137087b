"""The table at the end of `make policy`."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from operations.plain_text import PlainText
from operations.policy_check.preview import Judged

_WIDTH = 110


def render(stacks: Sequence[Judged]) -> str:
    """Each stack with its policies, how many resources they judged, and what they found, as plain text."""
    console = PlainText(_WIDTH)
    table = Table("stack", "policy", "resources judged", "findings", box=box.SIMPLE_HEAD)
    for stack in stacks:
        for policy in stack.policies:
            count = sum(finding.policy == policy for finding in stack.findings)
            table.add_row(stack.stack, policy, str(stack.resources), str(count))
    console.print(table)
    for stack in stacks:
        for rule, level in sorted(stack.levels.items()):
            console.print(f"{stack.stack}: the rule {rule} is {level} by the pack's configuration", style=None)
        for finding in stack.findings:
            console.print(f"{stack.stack}: {finding.policy} ({finding.level})", style=None)
            console.print(finding.message + "\n", soft_wrap=True)
    return console.text
