"""Which pack is run, and the configuration that tells it the stack's platform.

The engine hands no stack configuration to a pack that is an executable, only `--policy-pack-config`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from operations.errors import OperationError
from operations.new_files import write_whole

_FOLDER = Path(__file__).resolve().parents[2] / "policy"
SECTIONS = ("installs", "platform", "reservation", "gpu_operator", "kai", "gvirtus")
"""The keys of a stack's settings that the pack reads; it refuses others."""
ADVICE = "advice"
"""The policy of what a team chose to be told only: it refuses nothing, and has no canary."""


@dataclass(frozen=True)
class Pack:
    """A policy pack that is an executable.

    Attributes:
        name: what it must call itself.
        executable: starts it.
        canary: folder with one file per policy: resources that the policy must refuse, by rule.
        configuration: file for `--policy-pack-config` in place of the one that the stack's settings give.
    """

    name: str
    executable: Path
    canary: Path
    configuration: Path | None = None

    def version(self) -> str:
        """What its PulumiPolicy.yaml says, and so what the engine must report.

        Raises:
            OperationError: if there is no such file beside the executable.
        """
        file = self.executable.parent / "PulumiPolicy.yaml"
        try:
            return str(yaml.safe_load(file.read_text(encoding="utf-8"))["version"])
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise OperationError(
                f"{self.executable} is no policy pack: {file} must exist and say a `version` ({error})."
            ) from error

    def canaries(self) -> dict[str, dict[str, Any]]:
        """Resources that must be refused: policy to rule to `type` and `inputs`."""
        files = sorted(self.canary.glob("*.yaml"))
        return {file.stem: dict(yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files}


PACK = Pack("kai-anywhere", _FOLDER / "run", _FOLDER / "canary")
"""This repository's pack."""


def configured(pack: Pack, settings: dict[str, Any], into: Path) -> Path:
    """The file for `--policy-pack-config`: the stack's own settings, once for each policy.

    By policy, since the engine takes the key `all` only together with an enforcement level.

    Args:
        pack: the pack.
        settings: the stack's settings as its file says them.
        into: folder for the file.

    Raises:
        OperationError: if the file that was asked for can't be read.
    """
    # A section that is null is one that is not there.
    sections = {key: settings[key] for key in SECTIONS if settings.get(key) is not None}
    chosen: object = dict.fromkeys((*pack.canaries(), ADVICE), sections)
    if pack.configuration is not None:
        try:
            chosen = json.loads(pack.configuration.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OperationError(
                f"The policy pack's configuration {pack.configuration} is not JSON: {error}"
            ) from error
        if isinstance(chosen, dict):
            # The pack compares: what the stack's file says differently is a finding.
            policies = [key for key, value in chosen.items() if isinstance(value, dict) and key in pack.canaries()]
            chosen = chosen | {key: {"stack": sections} | chosen[key] for key in policies}
    file = into / "policy-config.json"
    write_whole(file, json.dumps(chosen))
    return file


def levels(configuration: Path) -> dict[str, str]:
    """The rules that a configuration gives another level, with that level, over all policies."""
    chosen = json.loads(configuration.read_text(encoding="utf-8"))
    policies = chosen.values() if isinstance(chosen, dict) else ()
    all_levels = [policy.get("levels") for policy in policies if isinstance(policy, dict)]
    return {
        rule: level
        for policy_levels in all_levels
        if isinstance(policy_levels, dict)
        for rule, level in policy_levels.items()
    }
