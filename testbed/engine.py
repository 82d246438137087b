"""A stack on the real Pulumi engine: its own project folder and file backend, the program of this checkout."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from testbed import key_service, warm_python
from testbed.made_once import in_tests, made_once
from testbed.stacks import ROOT, Json
from toolchain.programs import LANGUAGE_EXEC, NO_PLUGIN_DOWNLOADS

ASKS_NOBODY = {"PULUMI_SKIP_UPDATE_CHECK": "true", **NO_PLUGIN_DOWNLOADS}
"""The variables of a pulumi that has everything it needs."""


def without_logs(home: Path) -> Path:
    """A new home of pulumi's own that takes no logs.

    It keeps 500 MB of them, so those of thousands of runs would take the place of a person's own, and to write them is
    a tenth of a run's processor time (pulumi 3.259, pkg/logging).
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "logs").touch()
    return home


@dataclass(frozen=True)
class Run:
    """One finished pulumi command.

    Attributes:
        code: its exit status.
        output: what it printed, both streams.
        changes: resources by operation (`create`, `same`, ...), empty if the engine did not get that far.
        changed: logical names of the resources that were created, updated, replaced or deleted.
    """

    code: int
    output: str
    changes: Mapping[str, int]
    changed: frozenset[str]


class Stack:
    """A stack driven through the pulumi CLI and its language host, as a person does from the shell.

    `project` is the content of Pulumi.yaml; without it, `program` is run as this repository's project. Without a
    passphrase, tests have a key service protect secrets; whoever else drives a stack has the empty passphrase.
    """

    def __init__(  # noqa: PLR0913 - what a stack is made of
        self,
        folder: Path,
        settings: Json,
        environment: Mapping[str, str],
        *,
        name: str = "test",
        program: Path = ROOT,
        project: Json | None = None,
        passphrase: str | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        state = folder / "state"
        state.mkdir(parents=True)
        self.environment = dict(environment) | {
            # As `make` does; what happens without it is in test_recovery.py.
            "PULUMI_BACKEND_URL": f"{state.as_uri()}?metadata=skip",
            "PULUMI_CONFIG_PASSPHRASE": passphrase or "",
            **key_service.CREDENTIALS,
            **ASKS_NOBODY,
            # Unlocks --event-log, from which the changes are read; the Automation API does the same.
            "PULUMI_DEBUG_COMMANDS": "true",
        }
        self.environment.pop("KUBECONFIG", None)
        if project is None:
            project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
            project["main"] = str(program)
            if in_tests():
                self.environment[warm_python.ADDRESS] = warm_python.address()
            project["runtime"]["options"]["virtualenv"] = str(python_environment())
            # The language host of 3.78 is told no options, and takes this or python3 of PATH.
            self.environment |= python_command()
            project["plugins"]["providers"] = [{"name": "kai-anywhere", "path": str(ROOT / "package")}]
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
        key = ["--secrets-provider", key_service.secrets_provider()] if passphrase is None and in_tests() else []
        self.run("stack", "init", name, *key)
        self.settings = settings

    @property
    def settings(self) -> Json:
        """The value of `kai-anywhere:settings`."""
        settings: Json = self._content()["config"]["kai-anywhere:settings"]
        return settings

    @settings.setter
    def settings(self, settings: Json) -> None:
        content = self._content()
        config = content.get("config", {}) | {"kai-anywhere:settings": settings}
        self._file.write_text(yaml.safe_dump(content | {"config": config}), encoding="utf-8")

    def set_secret(self, name: str, value: str) -> None:
        """`pulumi config set --secret NAME`, with the value on stdin."""
        command = ["pulumi", "config", "set", "--secret", name, "--stack", self.name, "--cwd", str(self.folder)]
        subprocess.run(
            [*command, "--non-interactive"],
            env=self.environment,
            check=True,
            capture_output=True,
            input=value,
            text=True,
            timeout=600,
        )

    def up(self, *options: str, expect: int | None = 0) -> Run:
        """`pulumi up` without a preview."""
        return self.run("up", "--yes", "--skip-preview", *options, expect=expect)

    def preview(self, *options: str, expect: int | None = 0) -> Run:
        """`pulumi preview`."""
        return self.run("preview", *options, expect=expect)

    def refresh(self) -> Run:
        """`pulumi refresh`: what the cluster has, written into the state."""
        return self.run("refresh", "--yes", "--skip-preview")

    def destroy(self, *, expect: int | None = 0) -> Run:
        """`pulumi destroy`."""
        return self.run("destroy", "--yes", "--skip-preview", expect=expect)

    @contextmanager
    def started(self, command: str = "up") -> Iterator[subprocess.Popen[str]]:
        """A run in the background, `up` or `destroy`; it must have ended when the block does."""
        arguments = ["pulumi", command, "--yes", "--skip-preview", "--non-interactive", "--stack", self.name]
        with subprocess.Popen(
            [*arguments, "--cwd", str(self.folder)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            yield process

    @contextmanager
    def up_until_killed(self, command: str = "up") -> Iterator[None]:
        """An `up` that is killed with all its plugins, as by kill -9, when the block ends; or a `destroy`."""
        arguments = ["pulumi", command, "--yes", "--skip-preview", "--non-interactive", "--stack", self.name]
        with subprocess.Popen(
            [*arguments, "--cwd", str(self.folder)],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield
            finally:
                # Plugins run in process groups of their own.
                engine = psutil.Process(process.pid)
                for member in [engine, *engine.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()

    def resources(self) -> list[Json]:
        """The resources in the stack's state, as `pulumi stack export` gives them."""
        [file] = self.folder.glob(f"state/.pulumi/stacks/*/{self.name}.json")
        latest = json.loads(file.read_bytes())["checkpoint"].get("latest") or {}
        resources: list[Json] = latest.get("resources") or []
        return resources

    def run(self, *arguments: str, expect: int | None = 0) -> Run:
        """Run pulumi; fail unless it ends with the expected status (None: any)."""
        log = self.folder / "events.jsonl"
        log.unlink(missing_ok=True)
        command = ["pulumi", *arguments, "--non-interactive", "--cwd", str(self.folder)]
        if arguments[:2] != ("stack", "init"):
            command += ["--stack", self.name]
        if arguments[0] not in {"stack", "state", "cancel", "config"}:
            command += ["--event-log", str(log)]
        done = subprocess.run(command, env=self.environment, check=False, capture_output=True, text=True, timeout=600)
        output = (
            done.stdout if arguments[:2] in {("stack", "export"), ("stack", "output")} else done.stdout + done.stderr
        )
        if expect is not None and done.returncode != expect:
            raise AssertionError(f"pulumi {' '.join(arguments)} ended with {done.returncode}, not {expect}:\n{output}")
        changes, changed = _read(log)
        return Run(done.returncode, output, changes, changed)

    @property
    def _file(self) -> Path:
        return self.folder / f"Pulumi.{self.name}.yaml"

    def _content(self) -> Json:
        content: Json = yaml.safe_load(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}
        return content or {}


ASKED_BEFORE_EACH_RUN = ("-m", "pip", "list", "-v", "--format", "json")
"""The language host looks for packages that bring a plugin of pulumi's (pulumi-language-python 3.78)."""


def python_environment() -> Path:
    """The environment of stacks' programs: in tests one that answers sooner."""
    return made_once("python", write_python) or Path(sys.prefix)


def python_command() -> dict[str, str]:
    """The variable by which a language host takes that one for a project that names no environment."""
    return {"PULUMI_PYTHON_CMD": str(python_environment() / "bin" / "python")}


def write_python(environment: Path) -> None:
    """Write an environment that is this one, but answers at once what the language host asks before each run.

    The answer is always the same, and pip takes 0.4 s of processor time for it. This checkout's own program is asked of
    a Python that has its imports, where the environment names one.
    """
    (environment / "bin").mkdir(parents=True)
    packages = subprocess.run([sys.executable, *ASKED_BEFORE_EACH_RUN], check=True, capture_output=True, text=True)
    (environment / "packages.json").write_text(packages.stdout, encoding="utf-8")
    (environment / "client.py").write_text(warm_python.CLIENT, encoding="utf-8")
    python = environment / "bin" / "python"
    python.write_text(
        f"""#!/bin/sh
here="${{0%/bin/python}}" real={shlex.quote(str(Path(sys.prefix, "bin", "python")))}
[ "$*" = "{" ".join(ASKED_BEFORE_EACH_RUN)}" ] && exec cat "$here/packages.json"
case "${warm_python.ADDRESS}:$*" in
/*:*/{LANGUAGE_EXEC}" "*" --pwd "{shlex.quote(str(ROOT))}" "*) exec "$real" -IS "$here/client.py" "$real" "$@" ;;
esac
exec "$real" "$@"
""",
        encoding="utf-8",
    )
    python.chmod(0o755)


def _read(log: Path) -> tuple[dict[str, int], frozenset[str]]:
    changes: dict[str, int] = {}
    changed: set[str] = set()
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        if "summaryEvent" in event:
            changes = dict(event["summaryEvent"]["resourceChanges"] or {})
        if "resourcePreEvent" in event:
            step = event["resourcePreEvent"]["metadata"]
            if step["op"] not in {"same", "read", "refresh"}:
                changed.add(step["urn"].rsplit("::", 1)[1])
    return changes, frozenset(changed)
