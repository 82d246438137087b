"""The workflows and actions as YAML, and how their scripts are run here."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from testbed.stacks import ROOT

FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
ACTIONS = sorted((FOLDER / "actions").glob("*/action.yml"))
TRIGGERS = True
"""The key `on`, as YAML 1.1 reads it."""


def content(file: Path) -> Any:  # noqa: ANN401 - YAML
    """What the file says."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def jobs(name: str) -> dict[str, Any]:
    """The jobs of a workflow."""
    parts: dict[str, Any] = content(FOLDER / "workflows" / f"{name}.yml")["jobs"]
    return parts


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    """A job's steps; one that calls a workflow has none."""
    return list(job.get("steps", []))


def scripts(job: dict[str, Any]) -> str:
    """Everything that a job's steps run."""
    return "\n".join(step.get("run", "") for step in steps(job))


def script(part: dict[str, Any], name: str) -> str:
    """The script of the step with this name or id."""
    [script] = [step["run"] for step in steps(part) if "run" in step and name in {step.get("name"), step.get("id")}]
    return str(script)


def action(name: str) -> dict[str, Any]:
    """A composite action's steps."""
    return dict(content(FOLDER / "actions" / name / "action.yml")["runs"])


class Job:
    """A job's working folder on a machine of GitHub's: runs scripts as its shell does.

    Args:
        folder: the workspace.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output, self.summary, self.temp = folder / "output", folder / "summary", folder / "temp"
        self.temp.mkdir()
        self.output.touch()

    def run(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script as `shell: bash` does."""
        places = {
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.temp),
            "PATH": os.environ["PATH"],
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=self.folder,
            env=places | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def outputs(self) -> dict[str, str]:
        """The step's outputs so far."""
        return dict(line.split("=", 1) for line in self.output.read_text(encoding="utf-8").splitlines())
