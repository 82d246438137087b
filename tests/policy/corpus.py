"""`make policy-corpus`: the pack against the pods of Kubernetes' own Pod Security admission, check by check.

The data lies in the Go module that `tests/support/programs/pod-security-fixtures` pins: one folder for each level and
policy version, one file for each pod, named after the check. The pack claims the level baseline.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from tests.policy.objects import Json, findings
from tests.support.programs.fixtures import POD_SECURITY, fixtures

CLAIMED = {
    "apparmorprofile": "host-access",
    "capabilities_baseline": "host-access",
    "hostnamespaces": "host-access",
    "hostpathvolumes": "host-paths",
    "hostports": "host-access",
    "hostprobesandhostlifecycle": "host-access",
    "privileged": "privileged",
    "procmount": "host-access",
    "seccompprofile_baseline": "host-access",
    "selinuxoptions": "host-access",
    "sysctls": "host-access",
    "windowshostprocess": "host-access",
}
"""Every check of the level baseline, with the rule that claims it."""

RESTRICTED_ONLY = frozenset(
    {
        "allowprivilegeescalation",
        "capabilities_restricted",
        "procmount_restricted",
        "restrictedvolumes",
        "runasnonroot",
        "runasuser",
        "seccompprofile_restricted",
    }
)
"""Checks of the level restricted, which the pack does not claim: their bad pods count for nothing here."""

_NOT_ASKED_THERE = frozenset({"images", "scheduling"})
"""Rules that Pod Security has no check for: its pods have images without tags."""
_WIDTH = 110


@dataclass(frozen=True)
class Fixture:
    """One pod.

    Attributes:
        file: where it stands.
        check: of Pod Security.
        bad: whether the newest baseline refuses it.
        pod: the pod.
    """

    file: str
    check: str
    bad: bool
    pod: Json


def read(folder: Path) -> list[Fixture]:
    """Every distinct pod of both levels and all versions that has a verdict of the level baseline."""
    fixtures: dict[tuple[str, bool, str], Fixture] = {}
    for path in sorted(folder.glob("*/*/*/*.yaml")):
        verdict, check = path.parts[-2], path.stem.rstrip("0123456789")
        if verdict == "fail" and check in RESTRICTED_ONLY:
            continue
        text = path.read_text(encoding="utf-8")
        pod = yaml.load(text, Loader=yaml.CSafeLoader)
        bad = verdict == "fail" and not _allowed_since(check, pod)
        fixtures.setdefault((check, bad, text), Fixture(str(path.relative_to(folder)), check, bad, pod))
    return list(fixtures.values())


def _allowed_since(check: str, pod: Json) -> bool:
    """Version 1.35 began to allow an unmasked /proc in a user namespace; older versions refuse it."""
    return check == "procmount" and pod["spec"].get("hostUsers") is False


def with_debug_container(fixture: Fixture) -> Json:
    """The pod with its first container as an ephemeral one too: no fixture has any."""
    spec: dict[str, Any] = fixture.pod["spec"]
    return fixture.pod | {"spec": spec | {"ephemeralContainers": spec["containers"][:1]}}


def rules(token: str, props: Json) -> set[str]:
    """The rules that refuse a resource, of those that Pod Security asks too."""
    return {finding.rule for finding in findings(token, props)} - _NOT_ASKED_THERE


@dataclass
class Score:
    """Counts of one check."""

    bad: int = 0
    found: int = 0
    good: int = 0
    refused: int = 0


def score(read_fixtures: list[Fixture]) -> dict[str, Score]:
    """How many bad pods of each check its rule finds, and how many good ones any rule refuses."""
    scores: dict[str, Score] = {}
    for fixture in read_fixtures:
        counted = scores.setdefault(fixture.check, Score())
        refusing = rules("kubernetes:core/v1:Pod", fixture.pod)
        if fixture.bad:
            counted.bad += 1
            counted.found += CLAIMED[fixture.check] in refusing
        else:
            counted.good += 1
            counted.refused += bool(refusing)
    return dict(sorted(scores.items()))


def main() -> None:
    """Print the table; fail unless it is perfect."""
    scores = score(read(fixtures(POD_SECURITY)))
    table = Table("check", "rule", "bad pods", "found", "recall", "good pods", "refused", box=box.SIMPLE_HEAD)
    for row in _rows(scores):
        table.add_row(*row)
    console = Console(file=sys.stdout, width=_WIDTH, color_system=None, highlight=False)
    console.print("Pods of k8s.io/pod-security-admission, level baseline, every policy version:")
    console.print(table)
    if any(score.found < score.bad or score.refused for score in scores.values()):
        sys.exit(1)


def _rows(scores: dict[str, Score]) -> Iterator[tuple[str, ...]]:
    total = Score()
    for check, score in scores.items():
        recall = f"{score.found / score.bad:.0%}" if score.bad else "-"
        rule = CLAIMED.get(check, "-")
        yield check, rule, str(score.bad), str(score.found), recall, str(score.good), str(score.refused)
        total = Score(
            total.bad + score.bad, total.found + score.found, total.good + score.good, total.refused + score.refused
        )
    recall = f"{total.found / total.bad:.0%}" if total.bad else "-"
    yield "all", "", str(total.bad), str(total.found), recall, str(total.good), str(total.refused)


if __name__ == "__main__":
    main()
