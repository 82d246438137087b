"""The comment as it is posted: first what the base branch's own code found, then what the pull request's code says."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from manifests.wording import first_of
from operations.engine_events import Finding, Record, record_of
from operations.pull_request import markdown
from operations.pull_request.comment import (
    LIMIT_BYTES,
    Occasion,
    finding_blocks,
    marker,
    people_section,
    preview_body,
)
from operations.pull_request.report import Report
from operations.redaction import Redactor

_OWN_BYTES = 32_000
_UNCHECKED = "_As the pull request's own code tells it. What was checked stands below._"
_FILES_SHOWN = 40
_FILES_BYTES = 8_000
_FILES_FRAME_BYTES = 500
"""For what stands around the kinds of files."""
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Exceptions of the policy pack", ("policy/exceptions*", "policy-exceptions.yaml", "*/policy-exceptions.yaml")),
    ("The policy pack", ("policy/*", "pod_checks/*")),
    ("Workflows, and what decides whether a change lands", (".github/*", ".ci/*", "Makefile")),
    (
        "Pinned versions of programs, charts and libraries",
        (
            *("*requirements*.txt", "pyproject.toml", "manifests/versions.py", "toolchain/*", "*Containerfile"),
            *("*/go.mod", "*/go.sum", "renovate.json"),
        ),
    ),
    (
        "Settings of stacks",
        ("Pulumi.*.yaml", "*/Pulumi.*.yaml", "bases/*.yaml", "*/bases/*.yaml", "fleet.yaml", "*/fleet.yaml"),
    ),
    (
        "The program",
        (
            # A team's project says which program runs, and in which version.
            "Pulumi.yaml",
            "*/Pulumi.yaml",
            "__main__.py",
            "*/__main__.py",
            "components/*",
            "cluster/*",
            "gpu_sharing/*",
            "manifests/*",
            "config/*",
            "package/*",
        ),
    ),
    ("What runs on hosts and in the cluster", ("agents/*",)),
    ("The commands, this comment's code among them", ("operations/*", "sharing_map/*", "simulator/*")),
    (
        "Tests and documentation",
        ("tests/*", "docs/*", "examples/*", "templates/*", "benchmarks/*", "testbed/*", "*.md", "LICENSE"),
    ),
)
"""A file is of the first kind that has a pattern for it; `*` takes folders too. One that no kind has is shown too."""
_OTHER = "Other files"


@dataclass(frozen=True)
class Changes:
    """What GitHub says of a pull request's files.

    Attributes:
        paths: of the changed files; a renamed one's old path too.
        head: the commit that they were compared at.
        listed_all: whether GitHub listed every changed file.
        removed: those of the paths that are no file any more.
    """

    paths: tuple[str, ...]
    head: str
    listed_all: bool
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Verified:
    """What the base branch's code knows without running the pull request's.

    Attributes:
        changes: which files the pull request changes.
        findings: what the base branch's pack objects to in the plan; None where it judged nothing.
        not_judged: why it judged nothing; empty where it did.
        resources: how many resources of the plan it judged.
    """

    changes: Changes
    findings: tuple[Finding, ...] | None
    not_judged: str = ""
    resources: int = 0


def posted_comment(verified: Verified, report: Report | str, occasion: Occasion, redactor: Redactor) -> str:
    """The whole comment, at most `LIMIT_BYTES`.

    Args:
        verified: what the base branch found.
        report: the pull request's own, or why there is none that can be read.
        occasion: this run; its status is not looked at.
        redactor: hides once more what looks like a secret.
    """
    head = f"{marker('preview', occasion.stack, occasion.folder)}\n### Preview of {markdown.code(occasion.place)}\n"
    own = (
        *_people(report, redactor),
        markdown.Section("Checked by the code of the base branch", [_judged(verified, report)], 2_000),
        markdown.Section(
            "Findings of the base branch's policy pack", finding_blocks(verified.findings or (), redactor), 12_000
        ),
        markdown.Section("Changed files", _files(verified.changes, redactor.text), _FILES_BYTES),
    )
    comment = markdown.composed(head, own, "", limit=_OWN_BYTES)
    if isinstance(report, str):
        text = (
            "\n### No report of the pull request's own code\n\n"
            f"**{report[:1].upper()}{report[1:]}. Nothing of its plan is known here; the run's log may tell more.**\n"
        )
        return comment + text
    record = _counted(record_of(report.events))
    where = (
        "\n### Told by the pull request's own code\n\n"
        "_Nothing below was checked. It is what the branch's program, its Pulumi packages and its policy pack said in "
        "a job that ran the branch's code; all of them can be changed by the pull request._\n"
    )
    left = LIMIT_BYTES - len(comment.encode()) - len(where.encode()) - 1
    return f"{comment}{where}\n" + preview_body(record, replace(occasion, status=report.status), redactor, limit=left)


def _people(report: Report | str, redactor: Redactor) -> tuple[markdown.Section, ...]:
    return () if isinstance(report, str) else (people_section(record_of(report.events), redactor, _UNCHECKED),)


def _counted(record: Record) -> Record:
    """The record with the steps counted here, in place of the numbers that it gives itself."""
    counts: dict[str, int] = dict(Counter(step.op for step in record.steps))
    return replace(record, counts=counts | ({"same": record.registered} if record.complete else {}))


def _judged(verified: Verified, report: Report | str) -> str:
    lines = []
    if verified.findings is None:
        lines.append(f"- **The base branch's policy pack judged nothing: {verified.not_judged}.**")
    else:
        blocking = sum(finding.blocks for finding in verified.findings)
        text = f"The base branch's policy pack, with the stack's settings of the base branch, refuses {blocking} "
        text += f"thing{'' if blocking == 1 else 's'} in the plan of {verified.resources} resources that the branch's "
        text += "program told."
        lines.append(f"- {f'**{text}**' if blocking else text}")
    if not isinstance(report, str):
        record = record_of(report.events)
        lines.append(
            f"- Counted in the event log: {len(record.steps)} steps that change something, "
            f"{record.registered} resources of the program."
        )
    lines.append(f"- Files were compared at the pull request's commit {markdown.code(verified.changes.head)}.")
    return "\n".join(lines) + "\n"


def _files(changes: Changes, hide: Callable[[str], str]) -> Sequence[str]:
    """A block for each kind of file, the most dangerous first; long names of one kind hide no other kind."""
    kinds: dict[str, list[str]] = {}
    for path in sorted(set(changes.paths)):
        kinds.setdefault(kind_of(path), []).append(path)
    names = [*(name for name, _ in _KINDS[:-1]), _OTHER, _KINDS[-1][0]]
    room = (_FILES_BYTES - _FILES_FRAME_BYTES) // max(len(kinds), 1)
    blocks = [
        _listed(f"- {title} ({len(paths)}): ", paths, hide, room)
        for name in names
        if (paths := kinds.get(name))
        for title in [name if name in {_OTHER, names[-1]} else f"**{name}**"]
    ]
    if not changes.listed_all:
        blocks.insert(0, "- **GitHub did not list all changed files: look at them on the pull request's own page.**\n")
    return blocks or ["- None.\n"]


def kind_of(path: str) -> str:
    """The kind of file that a path is of."""
    return next((name for name, patterns in _KINDS if any(fnmatchcase(path, pattern) for pattern in patterns)), _OTHER)


def _listed(title: str, paths: Sequence[str], hide: Callable[[str], str], room: int) -> str:
    """The title with as many paths as fit into so many bytes; the first always does."""
    names = [markdown.code(hide(path), length=120) for path in paths]
    texts = (f"{title}{first_of(names, shown)}\n" for shown in range(_FILES_SHOWN, 0, -1))
    return next((text for text in texts if len(text.encode()) <= room), f"{title}{first_of(names, 1)}\n")
