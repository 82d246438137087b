"""What a probe found, for people and for programs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from config.reservation import Overrides, Privilege
from config.stack import StackSettings
from operations.privilege_probe.ladder import MEANINGS, Attempt, Feature, Rung, Symptom, answer
from operations.status.words import printable

NOT_SEEN = {
    "container_toolkit": "the version of the container toolkit",
    "l4t": "the L4T release behind kernel and OS image",
    "csv_digest": "the node's CSV files",
    "cdi_digest": "the node's CDI specifications",
}
"""What an answer depends on and only the host tells, by its name in `valid_for`."""
FOUND, NOT_RUN, NOT_HELD = 0, 1, 3
"""Exit codes: an answer; the probe could not run; no rung held."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tried(_Model):
    """A rung that was tried.

    Attributes:
        rung: its name.
        adds: what its pod had.
        pod_security: the level of Pod Security that it needs.
        symptom: what came of it, as a key.
        means: the same in a sentence.
        evidence: lines of the pod's log and events.
    """

    rung: str
    adds: tuple[str, ...]
    pod_security: str
    symptom: str
    means: str
    evidence: tuple[str, ...]


class Answer(_Model):
    """What `--json` prints.

    Attributes:
        node: the Jetson.
        status: the exit status.
        rung: the lowest rung that held and that settings can say; null without one.
        privilege: what `reservation.privilege` calls it; null where it has no name there.
        workaround_needed: whether the pod still needs more than the container toolkit gives it; null where that is not
            known.
        sentence: the same for a person.
        remarks: what else a person should know.
        settings: what stands in the stack's settings with the answer; empty without one.
        attempts: the rungs that were tried, in their order.
        valid_for: what the answer holds for, as far as the cluster tells, and the host where it was asked.
        not_seen: what the answer depends on besides, in words.
    """

    node: str
    status: int
    rung: str | None
    privilege: str | None
    workaround_needed: bool | None
    sentence: str
    remarks: tuple[str, ...]
    settings: dict[str, Any]
    attempts: tuple[Tried, ...]
    valid_for: dict[str, str]
    not_seen: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A probe that came to its end.

    Attributes:
        node: the Jetson.
        settings: of the stack, as they were.
        groups: that the rungs with groups had.
        attempts: the rungs that were tried, in their order.
        valid_for: what the answer holds for, as far as the cluster tells, and the host where it was asked.
    """

    node: str
    settings: StackSettings
    groups: tuple[int, ...]
    attempts: Sequence[Attempt]
    valid_for: Mapping[str, str]

    @property
    def rung(self) -> Rung | None:
        """The lowest rung that held and that settings can say."""
        return answer(self.attempts)

    @property
    def status(self) -> int:
        """The exit code."""
        if self.rung:
            return FOUND
        ran = [attempt.symptom for attempt in self.attempts if attempt.symptom is not Symptom.REFUSED]
        return NOT_HELD if ran and MEANINGS[ran[-1]].answers else NOT_RUN

    @property
    def not_seen(self) -> list[str]:
        """What the answer depends on besides, in words."""
        return [words for name, words in NOT_SEEN.items() if name not in self.valid_for]

    @property
    def needed(self) -> bool | None:
        """Whether the pod still needs more than the container toolkit gives it; None where that is not known."""
        return None if self.rung is None else self.rung.privilege is not Privilege.NONE

    @property
    def sentence(self) -> str:
        """Whether the workaround is still needed."""
        match self.rung.privilege if self.rung else None:
            case Privilege.NONE:
                return (
                    f"The workaround is not needed on {self.node}: KAI's reservation pod told its GPU without "
                    "privilege and without a folder of the host."
                )
            case Privilege.DEVICES:
                return (
                    f"A part of the workaround is needed on {self.node}: the driver's libraries from the host, and no "
                    "privilege."
                )
            case Privilege.PRIVILEGED:
                if self._unknown:
                    return (
                        f"Privilege works on {self.node}; whether less would do is not known, since admission refused "
                        f"{self._unknown}."
                    )
                return f"The workaround is still needed on {self.node}: of what settings can say, only privilege held."
            case None if self.status == NOT_RUN:
                return f"The probe could not find out whether the workaround is needed on {self.node}."
            case None:
                return f"No rung held on {self.node}, so whether the workaround is needed is not known."

    @property
    def settings_to_write(self) -> dict[str, Any]:
        """What `reservation` says with the answer; empty without one."""
        if self.rung is None or self.rung.privilege is None:
            return {}
        reservation = self.settings.reservation
        others = {name: privilege.value for name, privilege in reservation.privilege_by_node.items()}
        by_node = others | {self.node: self.rung.privilege.value}
        written: dict[str, Any] = {"privilege_by_node": by_node}
        if reservation.overrides is Overrides.NEVER:
            if self._as_kai_makes_it:
                return {}
            written = {"overrides": Overrides.AUTO.value} | written
        rungs = {by_node.get(node, reservation.privilege.value) for node in self.settings.platform.jetsons}
        if Feature.GROUPS in self.rung.features and self.rung.privilege is not Privilege.PRIVILEGED:
            written["supplemental_groups"] = sorted({*reservation.supplemental_groups, *self.groups})
        elif reservation.supplemental_groups and rungs == {Privilege.PRIVILEGED.value}:
            # Settings refuse groups that no pod would get.
            written["supplemental_groups"] = []
        return {"reservation": written}

    @property
    def remarks(self) -> list[str]:
        """What else a person should know."""
        remarks = []
        held = [attempt.rung for attempt in self.attempts if attempt.symptom is Symptom.HELD]
        if held and held[0] is not self.rung:
            then = f"{self.rung.name} does, too" if self.rung else "of those that it can say none held"
            remarks.append(f"The rung {held[0].name} ({held[0].adds}) held, which no setting says; {then}.")
        if self._as_kai_makes_it:
            remarks.append(
                "The pod held as KAI makes it: once that is so on every Jetson of the stack, reservation.overrides: "
                "never leaves out the variables, too."
            )
        if self._unknown:
            remarks.append(
                f"Not known, since admission refused it: {self._unknown}. With pod_guard.scope: cluster, list the "
                "probe's namespace under pod_guard.exempt_namespaces while you probe."
            )
        return remarks

    @property
    def _as_kai_makes_it(self) -> bool:
        """Whether the pod held with the runtime class alone, which KAI itself sets in our stacks."""
        only = frozenset({Feature.RUNTIME_CLASS})
        return any(attempt.symptom is Symptom.HELD and attempt.rung.features == only for attempt in self.attempts)

    @property
    def _unknown(self) -> str:
        return ", ".join(attempt.rung.name for attempt in self.attempts if attempt.symptom is Symptom.REFUSED)

    def text(self) -> str:
        """For a person."""
        lines = []
        for attempt in self.attempts:
            lines += [f"{attempt.rung.name}: {attempt.symptom.value}", f"  adds: {attempt.rung.adds}"]
            lines.append(f"  means: {MEANINGS[attempt.symptom].means}")
            lines += [f"    {printable(line)}" for line in attempt.evidence]
        lines += ["", self.sentence, *self.remarks]
        if self.settings_to_write:
            lines += ["", "Write into the stack's settings:", ""]
            lines += yaml.safe_dump(self.settings_to_write, sort_keys=False, default_flow_style=None).splitlines()
        if self.rung:
            lines += ["", "The answer holds for:"]
            lines += [f"  {name}: {value}" for name, value in self.valid_for.items()]
            unseen = f", or what the cluster does not tell: {_joined(self.not_seen)}" if self.not_seen else ""
            lines.append(f"Probe again when one of them changes{unseen}.")
        return "\n".join(lines)

    def json(self) -> str:
        """For a program: an `Answer` as JSON."""
        answer = Answer(
            node=self.node,
            status=self.status,
            rung=self.rung.name if self.rung else None,
            privilege=self.rung.privilege.value if self.rung and self.rung.privilege else None,
            workaround_needed=self.needed,
            sentence=self.sentence,
            remarks=tuple(self.remarks),
            settings=self.settings_to_write,
            attempts=tuple(map(_tried, self.attempts)),
            valid_for=dict(self.valid_for),
            not_seen=tuple(self.not_seen),
        )
        return answer.model_dump_json(indent=2)


def _tried(attempt: Attempt) -> Tried:
    rung = attempt.rung
    return Tried(
        rung=rung.name,
        adds=tuple(feature.name.lower() for feature in Feature if feature in rung.features),
        pod_security=rung.pod_security,
        symptom=attempt.symptom.name.lower(),
        means=MEANINGS[attempt.symptom].means,
        evidence=tuple(attempt.evidence),
    )


def _joined(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
