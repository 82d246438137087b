"""Which site is updated when, and whether what happened so far lets the next wave begin. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum, unique
from fnmatch import fnmatchcase

from operations.errors import OperationError
from operations.fleet.file import FleetFile
from operations.stacks import FLEET_FILE

CANARY = "canary"
"""The name of the first wave."""


@dataclass(frozen=True)
class Step:
    """A wave with its sites.

    Attributes:
        name: as the file says it; the canary's is `canary`.
        sites: in alphabetical order.
        failure_budget: how many of them may fail.
        parallel: how many are updated at the same time.
    """

    name: str
    sites: tuple[str, ...]
    failure_budget: int = 0
    parallel: int = 1


@unique
class Outcome(StrEnum):
    """How the update of a site ended."""

    UPDATED = "updated"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    """What a wave's results say.

    Attributes:
        step: the wave.
        updated: sites that are.
        failed: sites whose update failed.
        unknown: sites of which nothing was heard: cancelled, or never begun. They count as failed.
    """

    step: Step
    updated: tuple[str, ...]
    failed: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the next wave may begin."""
        return len(self.failed) + len(self.unknown) <= self.step.failure_budget


def steps(fleet: FleetFile, sites: Collection[str]) -> tuple[Step, ...]:
    """The canary, then every wave with its sites.

    Raises:
        OperationError: if the file does not fit the sites that there are.
    """
    if fleet.canary not in sites:
        raise OperationError(f"{FLEET_FILE}: canary: there is no site '{fleet.canary}'.{_near(fleet.canary, sites)}")
    order = [Step(CANARY, (fleet.canary,))]
    left = set(sites) - {fleet.canary}
    for wave in fleet.waves:
        if wave.name in {step.name for step in order}:
            raise OperationError(f"{FLEET_FILE}: two waves have the name '{wave.name}'. Give each its own.")
        for pattern in wave.sites:
            if not any(fnmatchcase(site, pattern) for site in sites):
                raise OperationError(
                    f"{FLEET_FILE}: wave '{wave.name}': no site is '{pattern}'.{_near(pattern, sites)}"
                )
        chosen = tuple(sorted(site for site in left if any(fnmatchcase(site, pattern) for pattern in wave.sites)))
        if not chosen:
            raise OperationError(
                f"{FLEET_FILE}: wave '{wave.name}' has no site: earlier waves have all of them. Remove it."
            )
        left -= set(chosen)
        order.append(Step(wave.name, chosen, _budget(wave.failure_budget, len(chosen)), wave.parallel))
    if left:
        raise OperationError(
            f"{FLEET_FILE}: no wave has {', '.join(sorted(left))}. Add them to one, or end with a wave whose sites are "
            '["*"].'
        )
    return tuple(order)


def step_called(every: Sequence[Step], name: str) -> Step:
    """The wave of a name.

    Raises:
        OperationError: if there is none.
    """
    for step in every:
        if step.name == name:
            return step
    raise OperationError(f"{FLEET_FILE} has no wave '{name}'. There are: {', '.join(step.name for step in every)}.")


def judge(step: Step, outcomes: Mapping[str, Outcome]) -> Verdict:
    """What the results of a wave's sites say; those of other sites are nobody's business."""
    by = {
        outcome: tuple(site for site in step.sites if outcomes.get(site) is outcome)
        for outcome in (Outcome.UPDATED, Outcome.FAILED, None)
    }
    return Verdict(step, by[Outcome.UPDATED], by[Outcome.FAILED], by[None])


def _budget(budget: int | str, sites: int) -> int:
    """In sites; a share is rounded down."""
    return sites * int(budget.removesuffix("%")) // 100 if isinstance(budget, str) else budget


def _near(name: str, sites: Collection[str]) -> str:
    return "".join(f" Did you mean '{near}'?" for near in get_close_matches(name, sites, n=1))
