"""What a rollback would do: for people, and as JSON. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from operations.exit_status import ExitStatus
from operations.status.words import count

VERSION = 1
"""Of the JSON; a change that breaks its readers is another one."""
_SHOWN = 10


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Healing(_Part):
    """A Helm release that a killed run left half done, and how it is healed.

    Attributes:
        namespace: of the release.
        release: its name.
        status: what Helm noted: `pending-install`, `pending-upgrade` or `pending-rollback`.
        since: when Helm noted it.
        secret: that Helm noted it in; it is deleted.
        then: what Helm takes for the newest revision afterwards.
        hooks: what the revision's hooks left; it is deleted before.
    """

    namespace: str
    release: str
    status: str
    since: str
    secret: str
    then: str
    hooks: Sequence[str] = ()


class Blocker(_Part):
    """Why nothing is changed.

    Attributes:
        what: is in the way.
        remedy: the way out.
    """

    what: str
    remedy: str


class Plan(_Part):
    """What would be done, in its order.

    Attributes:
        version: of this document.
        stack: its name.
        server: the cluster's address.
        context: the kubeconfig's.
        cluster_uid: the UID of the namespace kube-system.
        only_heal: whether nothing is removed.
        blockers: what must be settled before.
        heals: Helm releases of the stack's.
        pending: resources that a killed run had begun; the state forgets them.
        removes_before: what `pulumi destroy` can't see and goes before it.
        destroys: what `pulumi destroy` deletes: how many of each kind.
        gives_back: adopted objects, which get their old values back.
        hosts: machines that get their files back.
        reservation_pods: how many go with their namespace.
        removes_after: what goes after it.
        stays: what is left, and why.
        unseen: what could not be looked at.
    """

    version: int = VERSION
    stack: str
    server: str
    context: str
    cluster_uid: str
    only_heal: bool = False
    blockers: Sequence[Blocker] = ()
    heals: Sequence[Healing] = ()
    pending: Sequence[str] = ()
    removes_before: Sequence[str] = ()
    destroys: Mapping[str, int] = Field(default={})
    gives_back: Sequence[str] = ()
    hosts: Sequence[str] = ()
    reservation_pods: int = 0
    removes_after: Sequence[str] = ()
    stays: Sequence[str] = ()
    unseen: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        parts = (self.heals, self.pending, self.removes_before, self.destroys, self.removes_after)
        return not any(parts)

    @property
    def status(self) -> ExitStatus:
        """Of a command that only shows it."""
        if self.blockers:
            return ExitStatus.FAILED
        return ExitStatus.WARNINGS if self.unseen else ExitStatus.WELL

    def text(self) -> str:
        """For people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"Stack '{self.stack}' on the cluster at {self.server} (context '{self.context}'):"
        number = 0
        for title, lines in self._steps():
            if lines:
                number += 1
                yield f"{number}. {title}"
                yield from (f"   {line}" for line in lines)
        if self.empty:
            yield "There is nothing to heal." if self.only_heal else "There is nothing to undo."
        if self.stays:
            yield "Stays:"
            yield from (f"   {line}" for line in self.stays)
        yield from (f"warning: can't look at {line}" for line in self.unseen)
        yield from (f"STOP: {blocker.what}\n      {blocker.remedy}" for blocker in self.blockers)

    def _steps(self) -> Iterator[tuple[str, list[str]]]:
        yield (
            "Heal Helm releases that a killed run left half done:",
            [
                f"{healing.release} in namespace {healing.namespace} is {healing.status} since {healing.since}: delete "
                f"{_what_goes(healing)}; {healing.then}"
                for healing in self.heals
            ],
        )
        yield "Let the state forget what that run had begun:", shown(self.pending)
        yield "Remove what pulumi destroy can't see:", shown(self.removes_before)
        counts = ", ".join(f"{number} {kind}" for kind, number in self.destroys.items())
        destroys = [counts] if counts else []
        if self.hosts:
            destroys.append(f"with the files of the hosts {', '.join(self.hosts)}, which each gives back")
        if self.reservation_pods:
            destroys.append(f"with {count(self.reservation_pods, 'reservation pod')}, to hold GPUs for other pods")
        if self.gives_back:
            destroys.append(f"given back, not deleted: {', '.join(self.gives_back)}")
        yield "pulumi destroy:", destroys
        yield "Remove what is left then:", list(self.removes_after)


def _what_goes(healing: Healing) -> str:
    hooks = f"what its hooks left ({', '.join(shown(healing.hooks))}), then " if healing.hooks else ""
    return f"{hooks}the Secret {healing.secret}"


def shown(names: Sequence[str]) -> list[str]:
    """The first of many names, and how many more there are."""
    more = len(names) - _SHOWN
    return [*names[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
