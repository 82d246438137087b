"""docs/compatibility.md, made of the evidence in docs/evidence: a row for each file."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from operations.errors import OperationError
from operations.verify.evidence import Evidence
from operations.verify.steps import Outcome

FOLDER = Path(__file__).parents[2] / "docs" / "evidence"

_INTRODUCTION = """\
# Compatibility

What was verified, and where. Each row is a file of [evidence](evidence/README.md) that
`kai-anywhere verify --evidence` wrote. `make reference` makes this page of them: do not edit it. A row holds for that
day and those versions only.

"""
_SEND = """\
## Send yours

Run it on your board and look through the file. Then open an issue with it, or a pull request that adds it to
`docs/evidence`:

```bash
kai-anywhere verify --evidence evidence.json --board "Jetson AGX Orin 64GB" --jetpack "6.2 (L4T 36.4.3)"
```

The file has versions and outcomes, and no names of nodes, addresses or secrets. Failed and skipped outcomes are
useful too.
"""
_SIMULATED = (
    "No board: the nodes of these runs are records, no container ran, and KAI and the GPU Operator may be emulated."
)
_HEAD = (
    "| {first} | JetPack / L4T | Kubernetes | Container toolkit | KAI | GPU Operator | Outcomes | Date |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def read_evidence(folder: Path = FOLDER) -> dict[str, Evidence]:
    """Every file of evidence, by its name.

    Raises:
        OperationError: one of them is not what verify writes.
    """
    read: dict[str, Evidence] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            read[file.name] = Evidence.model_validate_json(file.read_text(encoding="utf-8"))
        except (ValidationError, UnicodeDecodeError) as error:
            raise OperationError(
                f"{file} is not what `kai-anywhere verify --evidence` writes: {error}\nTake it out, or write it anew."
            ) from error
    return read


def page(files: Mapping[str, Evidence]) -> str:
    """The page.

    Args:
        files: evidence by the file's name.
    """
    real = {name: evidence for name, evidence in files.items() if not evidence.simulated}
    simulated = {name: evidence for name, evidence in files.items() if evidence.simulated}
    lines = ["## Boards and servers", ""]
    if real:
        lines += _table("Board", real)
    else:
        lines.append("None yet: nobody has sent evidence of a real board or server, so none is claimed to work.")
    if simulated:
        lines += ["", "## Simulated", "", _SIMULATED, ""]
        lines += _table("Simulator", simulated)
    return _INTRODUCTION + "\n".join(lines) + "\n\n" + _SEND


def _table(first: str, files: Mapping[str, Evidence]) -> Iterator[str]:
    yield _HEAD[0].format(first=first)
    yield _HEAD[1]
    for name, evidence in sorted(files.items(), key=lambda item: (item[1].board, item[1].taken, item[0])):
        cells = (
            f"[{_cell(evidence.board or 'not said')}](evidence/{name})",
            evidence.jetpack or "not said",
            f"{evidence.distribution} {evidence.kubernetes}",
            evidence.container_toolkit,
            evidence.kai or "not seen",
            evidence.gpu_operator or "not seen",
            _outcomes(evidence),
            evidence.taken.isoformat(),
        )
        yield f"| {cells[0]} | {' | '.join(map(_cell, cells[1:]))} |"


def _outcomes(evidence: Evidence) -> str:
    """The outcomes of each kind of step, in the order of steps."""
    names = dict.fromkeys(step.name for step in evidence.steps)
    parts = []
    for name in names:
        counts = Counter(step.outcome for step in evidence.steps if step.name == name)
        numbers = [f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome]]
        parts.append(f"{name}: {', '.join(numbers)}")
    return "; ".join(parts) or "nothing was verified"


def _cell(text: str) -> str:
    """A text of somebody else's, as text of a table: no markup, no links."""
    plain = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_[]<>|!#" else character for character in plain)
