"""Renders a preview for a pull request, and drift for an issue."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from operations.engine_events import Finding, Record, Step
from operations.pull_request import markdown
from operations.pull_request.consequences import sentences
from operations.pull_request.differences import Difference, differences, drift
from operations.redaction import Redactor

LIMIT_BYTES = 60_000
"""GitHub refuses a comment of more than 65,536 characters."""

_LINES_OF_A_DIFFERENCE = 60
_VALUE_CHARACTERS = 400
_UNCHANGED_SHOWN = 40
_NO_COMPONENT = "Outside of the components"
_ORDER = ("delete", "replace", "create", "update", "import")
_WORDS = {"delete": "deleted", "replace": "replaced", "create": "created", "update": "updated", "import": "imported"}


@dataclass(frozen=True)
class Occasion:
    """Which run is told of.

    Attributes:
        stack: the stack's name.
        status: exit status of pulumi; 0 is success.
        commit: what was previewed, as a git object name; empty if unknown.
        log_url: where the whole log can be read; empty if nowhere.
        folder: where the stack's file is in the repository; empty for its root.
    """

    stack: str
    status: int
    commit: str = ""
    log_url: str = ""
    folder: str = ""

    @property
    def place(self) -> str:
        """The stack with its folder: several folders of a repository may each have one of the name."""
        return _place(self.stack, self.folder)


def marker(kind: str, stack: str, folder: str = "") -> str:
    """The invisible line by which a comment or an issue is found again."""
    return f"<!-- kai-anywhere:{kind}:{_place(stack, folder)} -->"


def _place(stack: str, folder: str) -> str:
    return f"{folder}/{stack}" if folder else stack


def preview_comment(record: Record, occasion: Occasion, redactor: Redactor) -> str:
    """A preview: what changes for people, what is wrong, what policies found, what would change, value by value.

    The text is bounded (`LIMIT_BYTES`), and shows texts of others as code only.
    """
    head = f"{marker('preview', occasion.stack, occasion.folder)}\n"
    people = (people_section(record, redactor),)
    return head + preview_body(record, occasion, redactor, limit=LIMIT_BYTES - len(head), first=people)


def skipped_comment(occasion: Occasion) -> str:
    """What replaces an older comment where there are no credentials any more."""
    return (
        f"{marker('preview', occasion.stack, occasion.folder)}\n"
        f"### Preview of {markdown.code(occasion.place)}: skipped\n"
        "\nNo credentials are configured for this stack, so nothing is known of what would change. docs/teams.md tells "
        "which are needed.\n"
    )


def retired_comment(occasion: Occasion) -> str:
    """What replaces the comment of a stack that the pull request does not concern any more."""
    return (
        f"{marker('preview', occasion.stack, occasion.folder)}\n"
        f"### Preview of {markdown.code(occasion.place)}: not concerned any more\n"
        "\nAn older push of this pull request concerned this stack. What it changes now does not.\n"
    )


def people_section(record: Record, redactor: Redactor, note: str = "") -> markdown.Section:
    """What changes for people, in sentences.

    Args:
        record: the preview.
        redactor: hides secrets.
        note: a paragraph before them.
    """
    statements = sentences(record, redactor)
    if not statements and record.complete:
        statements = [_unnoticed(len(record.steps)) if record.steps else "Nothing changes."]
    if statements and not record.complete:
        statements.append("**The engine did not come to its end: there may be more.**")
    blocks = [f"- {sentence}\n" for sentence in statements]
    return markdown.Section("What changes for people", [f"{note}\n\n", *blocks] if note and blocks else blocks, 8_000)


def _unnoticed(count: int) -> str:
    return (
        f"{_many(count, 'resource')} would change, and people notice none of it: no privilege, no memory, no queue, no "
        "version, nothing that restarts."
    )


def preview_body(
    record: Record, occasion: Occasion, redactor: Redactor, *, limit: int, first: Sequence[markdown.Section] = ()
) -> str:
    """The text of a preview without the line by which it is found again.

    Args:
        record: the preview.
        occasion: the run.
        redactor: hides secrets.
        limit: most bytes of the text.
        first: sections that come before all others.
    """
    head = f"### Preview of {markdown.code(occasion.place)}: {_headline(record)}\n"
    blocking = sum(finding.blocks for finding in record.findings)
    if blocking:
        head += f"\n**{_many(blocking, 'policy finding')} must be solved before this can be deployed.**\n"
    if occasion.status != 0 and not blocking:
        head += "\n**The preview failed.**\n"
    if not record.complete:
        head += "\n**The engine did not come to its end: what stands here is incomplete.**\n"
    if record.complete and not record.packs:
        head += "\n**No policy pack ran: nothing here was judged.**\n"
    sections = (
        *first,
        _errors(record, redactor),
        _findings(record, redactor),
        _changes("Resources that change", record.steps, redactor),
        _values("Values", record.steps, differences, redactor),
        _unchanged(record.unchanged, redactor),
        _warnings(record, redactor),
    )
    return markdown.composed(head, sections, _foot(record, occasion), limit=limit)


def drift_issue(record: Record, occasion: Occasion, redactor: Redactor) -> str:
    """Drift: what was changed outside of Pulumi, and what an `up` that asks the cluster would do about it."""
    if record.drifted:
        what = f"{_many(len(record.drifted), 'resource')} changed outside of Pulumi"
        why = (
            "The cluster is not as the program says. `pulumi up --refresh` makes it so again; if the change was meant, "
            "say it in the stack file instead. docs/teams.md tells how."
        )
    elif record.steps:
        # Between a merge and its roll-out; nobody at the cluster has done anything.
        what = "not deployed"
        why = (
            "No change was found outside of Pulumi. What the stack file, its base or the program says now was not "
            "deployed yet: `pulumi up --refresh` does what stands below."
        )
    else:
        what = "the check failed"
        why = "No change was found outside of Pulumi, and the check failed for what stands below."
    head = f"{marker('drift', occasion.stack, occasion.folder)}\n### {markdown.code(occasion.place)}: {what}\n"
    if not record.complete:
        head += "\n**The check did not come to its end: what stands here is incomplete.**\n"
    head += f"\n{why}\n"
    sections = (
        _errors(record, redactor),
        _findings(record, redactor),
        _changes("Changed outside of Pulumi", [_as_found(step) for step in record.drifted], redactor, tense=""),
        _values("Remembered (-) and found (+)", record.drifted, drift, redactor),
        _changes("What up with --refresh would do", record.steps, redactor),
        _values("Values", record.steps, differences, redactor),
        _warnings(record, redactor),
    )
    return markdown.composed(head, sections, _foot(record, occasion), limit=LIMIT_BYTES)


def _headline(record: Record) -> str:
    changes = [
        f"{record.counts[op]} to be {_WORDS[op]}" if op not in {"delete", "replace"} else f"**{text}**"
        for op in _ORDER
        if record.counts.get(op)
        for text in [f"{record.counts[op]} to be {_WORDS[op]}"]
    ]
    if changes:
        return ", ".join(changes)
    return "nothing changes" if record.counts else "no plan"


def _errors(record: Record, redactor: Redactor) -> markdown.Section:
    return markdown.Section("Errors", [markdown.block(redactor.text(text)) for text in record.errors], 15_000)


def _findings(record: Record, redactor: Redactor) -> markdown.Section:
    return markdown.Section("Policy findings", finding_blocks(record.findings, redactor), 20_000)


def finding_blocks(findings: Iterable[Finding], redactor: Redactor) -> list[str]:
    """A list item of markdown for each finding."""
    return [_finding(finding, redactor) for finding in findings]


def _finding(finding: Finding, redactor: Redactor) -> str:
    level = "**blocks**" if finding.blocks else "advises"
    where = f" on {markdown.code(redactor.text(finding.urn.rsplit('::', 1)[-1]))}" if finding.urn else ""
    return f"- {level}: {markdown.code(finding.policy)}{where}\n\n" + _indented(
        markdown.block(redactor.text(finding.message.strip()), length=1500)
    )


def _changes(title: str, steps: Iterable[Step], redactor: Redactor, *, tense: str = "to be ") -> markdown.Section:
    """What changes, or has changed, by component; components with the most dangerous changes first."""
    rank = {op: index for index, op in enumerate(_ORDER)}
    ordered = sorted(steps, key=lambda step: rank.get(step.op, len(rank)))
    blocks: list[str] = []
    for component, parts in _by_component(ordered).items():
        counts = Counter(step.op for step in parts)
        summary = ", ".join(f"{count} {tense}{_WORDS.get(op, op)}" for op, count in counts.items() if op in _WORDS)
        between = "\n" if blocks else ""
        blocks.append(f"{between}{_component(component)}: {summary or _many(len(parts), 'resource')}\n\n")
        blocks += [
            f"- {markdown.code(step.op)} {markdown.code(step.type)} {markdown.code(redactor.text(step.name))}\n"
            for step in parts
        ]
    return markdown.Section(title, blocks, 10_000)


def _unchanged(steps: Sequence[Step], redactor: Redactor) -> markdown.Section:
    blocks = []
    for component, parts in _by_component(steps).items():
        lines = [f"- {markdown.code(step.type)} {markdown.code(redactor.text(step.name))}\n" for step in parts]
        shown = "".join(lines[:_UNCHANGED_SHOWN])
        if len(lines) > _UNCHANGED_SHOWN:
            shown += f"- {len(lines) - _UNCHANGED_SHOWN} more\n"
        blocks.append(markdown.folded(f"{component or _NO_COMPONENT}: {len(parts)}", shown))
    return markdown.Section("Resources that stay as they are", blocks, 8_000)


def _by_component(steps: Iterable[Step]) -> dict[str, list[Step]]:
    grouped: dict[str, list[Step]] = {}
    for step in steps:
        grouped.setdefault(step.component, []).append(step)
    return grouped


def _component(name: str) -> str:
    return f"**{markdown.code(name)}**" if name else f"**{_NO_COMPONENT}**"


def _as_found(step: Step) -> Step:
    """A refresh's step, named by what it found."""
    return step.model_copy(update={"op": "delete" if step.new is None else "update"})


def _values(
    title: str,
    steps: Iterable[Step],
    compare: Callable[[Step, Redactor], tuple[Difference, ...]],
    redactor: Redactor,
) -> markdown.Section:
    blocks = []
    for step in (step for parts in _by_component(steps).values() for step in parts):
        if differences := compare(step, redactor):
            shown = "\n".join(line for difference in differences for line in _lines(difference))
            summary = f"{step.op} {step.type} {redactor.text(step.name)}"
            blocks.append(markdown.folded(summary, markdown.block(_cut(shown), language="diff", length=8000)))
    return markdown.Section(title, blocks, LIMIT_BYTES)


def _lines(difference: Difference) -> Iterable[str]:
    why = "   # forces a replacement" if difference.replaces else ""
    path = markdown.clipped(difference.path, _VALUE_CHARACTERS)
    for sign, value in (("-", difference.old), ("+", difference.new)):
        if value is not None:
            yield f"{sign} {path}: {markdown.clipped(value, _VALUE_CHARACTERS)}{why}".replace("\n", " ")


def _cut(lines: str) -> str:
    all_lines = lines.split("\n")
    if len(all_lines) <= _LINES_OF_A_DIFFERENCE:
        return lines
    left_out = len(all_lines) - _LINES_OF_A_DIFFERENCE
    return "\n".join([*all_lines[:_LINES_OF_A_DIFFERENCE], f"# {left_out} more lines"])


def _warnings(record: Record, redactor: Redactor) -> markdown.Section:
    return markdown.Section("Warnings", [markdown.block(redactor.text(text)) for text in record.warnings], 8_000)


def _foot(record: Record, occasion: Occasion) -> str:
    parts = [f"policy pack {markdown.code(f'{name} {version}')}" for name, version in sorted(record.packs.items())[:5]]
    if occasion.commit:
        parts.append(f"commit {markdown.code(occasion.commit)}")
    if occasion.log_url:
        parts.append(f"[log]({occasion.log_url})")
    return f"\n{'; '.join(parts)}\n" if parts else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _indented(text: str) -> str:
    """Inside the list item that goes before."""
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))
