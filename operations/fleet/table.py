"""What is printed of a fleet. Pure."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from operations.fleet.order import Step, Verdict
from operations.fleet.report import Report, Site
from operations.status.words import clean

_UID_LETTERS = 8
_NOTHING = "-"


def states(report: Report) -> Table:
    """A line for each site."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    waves = any(site.wave for site in report.sites)
    for column in ("Site", *(["Wave"] if waves else []), "Cluster", "Platform", "KAI", "GPU Operator", "Program"):
        table.add_column(column, overflow="fold")
    table.add_column("Resources", justify="right", overflow="fold")
    table.add_column("Last update", overflow="fold")
    table.add_column("Look at", overflow="fold")
    for site in report.sites:
        wave = [site.wave or _NOTHING] if waves else []
        table.add_row(*(Text(clean(cell)) for cell in (site.site, *wave, *_cells(site))))
    return table


def _cells(site: Site) -> tuple[str, ...]:
    if site.unread is not None:
        return (*[_NOTHING] * 6, _NOTHING, "not read")
    # Of a first update that was killed no backend without accounts keeps an entry, only what it had begun.
    if not site.deployed and site.last is None and not site.problems:
        return (*[_NOTHING] * 5, "0", "never", "")
    cluster = (site.cluster or _NOTHING)[:_UID_LETTERS] + (" (simulator)" if site.simulated else "")
    last = f"{_minute(site.last.started)} {site.last.kind} {site.last.result}" if site.last else _NOTHING
    facts = (cluster, site.platform, site.kai, site.gpu_operator, site.version)
    return (*(fact or _NOTHING for fact in facts), str(site.resources), last, ", ".join(site.problems))


def _minute(started: str) -> str:
    """RFC 3339 without seconds."""
    return started[:16].replace("T", " ")


def reasons(report: Report) -> list[str]:
    """Why sites could not be read; sites with the same reason stand together."""
    by_reason: dict[str, list[str]] = {}
    for site in report.sites:
        if site.unread is not None:
            by_reason.setdefault(site.unread, []).append(site.site)
    return [f"{', '.join(sites)}: {clean(reason)}" for reason, sites in by_reason.items()]


def waves(steps: Sequence[Step]) -> str:
    """The order of a roll-out."""
    lines = []
    for number, step in enumerate(steps):
        sites = "1 site" if len(step.sites) == 1 else f"{len(step.sites)} sites, {step.parallel} at a time"
        budget = f"{step.failure_budget} may fail"
        lines += [f"{number}. {step.name}: {sites}; {budget}.", f"   {', '.join(step.sites)}"]
    return "\n".join(lines)


def verdict(result: Verdict) -> str:
    """What became of a wave, and whether the next one begins."""
    lines = [f"Wave '{result.step.name}': {len(result.updated)} of {len(result.step.sites)} sites are updated."]
    for what, sites in (("failed", result.failed), ("nothing was heard of", result.unknown)):
        if sites:
            lines.append(f"  {what}: {', '.join(sites)}")
    bad = len(result.failed) + len(result.unknown)
    if result.holds:
        lines.append(f"{bad} of at most {result.step.failure_budget} failed: the next wave may begin.")
    else:
        lines.append(
            f"{bad} failed, and at most {result.step.failure_budget} may: the next wave does not begin. The sites that "
            "were not reached are as they were. Mend what failed, and start the roll-out again: a site that is updated "
            "already takes no change."
        )
    return "\n".join(lines)
