"""A stack's preview under the pack."""

import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from operations.engine import NO_SUCH_STACK, not_made
from operations.engine_events import Finding, read_events
from operations.errors import OperationError
from operations.policy_check.configuration import Pack, configured, levels
from operations.policy_check.guard import check_packs, prove
from operations.stack_file import raw_settings
from operations.target import Target

PREVIEW_SECONDS = 1200.0
_LAST_CHARACTERS = 4000


@dataclass(frozen=True)
class Judged:
    """A preview that ran to its end under the pack.

    Attributes:
        stack: the stack's name.
        policies: that were proved to be in force.
        resources: that the program registers.
        findings: of all policies.
        levels: rules that the configuration gives another level.
    """

    stack: str
    policies: tuple[str, ...]
    resources: int
    findings: tuple[Finding, ...]
    levels: dict[str, str] = field(default_factory=dict)


def judged(target: Target, pack: Pack) -> Judged:
    """Preview a stack under a pack that was proved to be in force.

    Raises:
        OperationError: if the pack is not in force, or the preview fails for another reason than findings.
    """
    with tempfile.TemporaryDirectory(prefix="kai-anywhere-policy-") as name:
        folder = Path(name)
        configuration = configured(pack, raw_settings(target.project / f"Pulumi.{target.stack}.yaml"), folder)
        prove(pack, configuration, target.environment, folder)
        log = folder / "events.jsonl"
        done = _preview(target, pack, configuration, log)
        record = read_events(log.read_text(encoding="utf-8").splitlines() if log.exists() else [])
        if NO_SUCH_STACK in done.stderr:
            raise OperationError(f"{not_made(target.stack)} Or take the simulator: --simulator.")
        if done.returncode != 0 and not any(finding.blocks for finding in record.findings):
            reason = (done.stdout + done.stderr).strip()[-_LAST_CHARACTERS:]
            raise OperationError(f"The preview of stack '{target.stack}' failed:\n{reason}")
        check_packs(pack, record.packs)
        return Judged(target.stack, tuple(pack.canaries()), record.registered, record.findings, levels(configuration))


def _preview(target: Target, pack: Pack, configuration: Path, log: Path) -> subprocess.CompletedProcess[str]:
    command = ["pulumi", "preview", "--stack", target.stack, "--non-interactive", "--cwd", str(target.project)]
    options = ["--policy-pack", str(pack.executable), "--policy-pack-config", str(configuration)]
    try:
        return subprocess.run(
            [*command, *options, "--event-log", str(log)],
            # Unlocks --event-log: `preview --json` leaves policies out.
            env=dict(target.environment) | {"PULUMI_DEBUG_COMMANDS": "true"},
            check=False,
            capture_output=True,
            text=True,
            timeout=PREVIEW_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(
            f"The preview of stack '{target.stack}' timed out after {PREVIEW_SECONDS:.0f} s; the last it said:\n"
            f"{str(error.stdout or '')[-_LAST_CHARACTERS:]}"
        ) from error
