"""Proves that a pack is in force: it starts, is the right one, is not weakened, and refuses what it must refuse."""

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operations.engine_events import Finding, read_events
from operations.errors import OperationError
from operations.policy_check.configuration import Pack, levels

START_SECONDS = 120.0
ANALYSIS_SECONDS = 300.0
_REMEDY = "Nothing protects the stacks until this is repaired."
_LAST_CHARACTERS = 2000


def prove(pack: Pack, configuration: Path, environment: Mapping[str, str], folder: Path) -> None:
    """Return if the pack refuses every canary under a configuration, but those of rules that it lowers by name.

    Args:
        pack: the pack.
        configuration: the very file that the preview is given.
        environment: of every program that is run.
        folder: for the canary's state, and the working folder.

    Raises:
        OperationError: if the pack is not in force; the text says why.
    """
    _check_start(pack, environment, START_SECONDS)
    missing: list[str] = []
    other = {rule for rule, level in levels(configuration).items() if level != "mandatory"}
    # Those with resources first: another pack answers them, and is recognised; of the other's configuration it fails.
    for policy, every in sorted(pack.canaries().items(), key=lambda canary: not canary[1]):
        resources = {rule: resource for rule, resource in every.items() if rule not in other}
        if every and not resources:
            continue
        findings = _analyze(
            pack, _with_operator(configuration, policy, resources, folder), environment, folder, resources
        )
        missing += _not_refused(policy, resources, findings)
    if missing:
        raise OperationError(
            "The policy pack let pass what it must refuse:\n"
            + "\n".join(f"  {line}" for line in missing)
            + f"\nLook for an enforcement level other than mandatory in {configuration}, and at the policy. {_REMEDY}"
        )


def check_packs(pack: Pack, packs: Mapping[str, str]) -> None:
    """Return if exactly this pack ran, in its version.

    Raises:
        OperationError: if not.
    """
    expected = {pack.name: pack.version()}
    if dict(packs) != expected:
        ran = ", ".join(f"{name} {version}" for name, version in packs.items()) or "none"
        raise OperationError(f"The policy pack {pack.name} {pack.version()} did not run; what ran: {ran}. {_REMEDY}")


def _check_start(pack: Pack, environment: Mapping[str, str], within_seconds: float) -> None:
    """Pulumi waits for ever for a pack that prints no port (3.259), so it is asked before."""
    port, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            [pack.executable],
            env=dict(environment),
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        os.close(port)
        raise OperationError(f"The policy pack {pack.executable} can't be started: {error}. {_REMEDY}") from error
    finally:
        os.close(write_end)
    with process:
        ready, _, _ = select.select([port], [], [], within_seconds)
        printed = os.read(port, _LAST_CHARACTERS).decode(errors="replace").strip() if ready else ""
        os.close(port)
        process.kill()
        _, errors = process.communicate()
    if printed.isdigit():
        return
    silence = "ended" if ready else f"said nothing for {within_seconds:.0f} s"
    raise OperationError(
        f"The policy pack {pack.executable} {f'said {printed!r}' if printed else silence} where it must print its "
        f"port. {_REMEDY}\n{errors[-_LAST_CHARACTERS:]}".rstrip()
    )


def _with_operator(configuration: Path, policy: str, resources: Mapping[str, Any], folder: Path) -> Path:
    """The configuration; for the policy of exceptions as of a stack that installs the GPU Operator."""
    if resources:
        return configuration
    settings = json.loads(configuration.read_text(encoding="utf-8"))
    own = settings.get(policy, {}) if isinstance(settings, dict) else {}
    if isinstance(own, dict):
        settings = {**settings, policy: {**_of_everything(own), "gpu_operator": {"install": True}}}
    file = folder / "canary-config.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


def _of_everything(section: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's configuration, and the stack's file in it, without `installs`: hosts alone have no operator."""
    return {
        key: _of_everything(value) if key == "stack" and isinstance(value, dict) else value
        for key, value in section.items()
        if key != "installs"
    }


def _analyze(
    pack: Pack, configuration: Path, environment: Mapping[str, str], folder: Path, resources: Mapping[str, Any]
) -> tuple[Finding, ...]:
    state = folder / "canary.json"
    state.write_text(json.dumps(_state(resources)), encoding="utf-8")
    command = ["pulumi", "policy", "analyze", "--file", str(state), "--policy-pack", str(pack.executable)]
    try:
        done = subprocess.run(
            [*command, "--policy-pack-config", str(configuration), "--json", "--non-interactive", "--cwd", str(folder)],
            env=dict(environment),
            check=False,
            capture_output=True,
            text=True,
            timeout=ANALYSIS_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OperationError(f"`pulumi policy analyze` timed out after {ANALYSIS_SECONDS:.0f} s. {_REMEDY}") from error
    # What is not an event, such as a plugin's warning, stands between them.
    events = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not events:
        raise OperationError(f"The policy pack can't be run: {done.stderr.strip()[-_LAST_CHARACTERS:]}\n{_REMEDY}")
    record = read_events(events)
    check_packs(pack, record.packs)
    return record.findings


def _state(resources: Mapping[str, Any]) -> dict[str, Any]:
    """A stack's exported state with the canaries in it."""
    created = "2026-01-01T00:00:00Z"
    head = "urn:pulumi:canary::canary::"
    stack = {"urn": f"{head}pulumi:pulumi:Stack::canary", "custom": False, "type": "pulumi:pulumi:Stack"}
    canaries = [
        {
            "urn": f"{head}{resource['type']}::{rule}",
            "custom": True,
            "id": rule,
            "type": resource["type"],
            "inputs": resource["inputs"],
        }
        for rule, resource in resources.items()
    ]
    manifest = {"time": created, "magic": "", "version": ""}
    listed = [resource | {"created": created} for resource in (stack, *canaries)]
    return {"version": 3, "deployment": {"manifest": manifest, "resources": listed}}


def _not_refused(policy: str, resources: Mapping[str, Any], findings: Sequence[Finding]) -> list[str]:
    mandatory = [finding for finding in findings if finding.blocks and finding.policy == policy]
    if not resources:
        return [] if mandatory else [f"{policy}: a stack with an exception that nothing needs"]
    refused = {
        rule
        for finding in mandatory
        for rule in resources
        if finding.urn.endswith(f"::{rule}") and f"rule:   {rule}\n" in finding.message
    }
    return [
        f"{policy}: the canary of the rule {rule} ({resources[rule]['type']})"
        for rule in sorted({*resources} - refused)
    ]
