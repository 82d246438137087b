"""Faults of the stack's state: its disk, its passphrase, its bucket, its lock; a small program stands for ours."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.ports import free_ports
from testbed.engine import ASKS_NOBODY, Stack, python_command
from testbed.waiting import eventually
from tests.support import s3
from tests.support.s3 import BUCKET, Aws, Person, Request

pytestmark = pytest.mark.engine

_PROGRAM = '''
"""Stands for a program that changes a cluster: it notes that it ran, and may wait."""
import os
import pathlib
import time

import pulumi


class Part(pulumi.ComponentResource):
    def __init__(self, name: str) -> None:
        super().__init__("test:index:Part", name, {"size": pulumi.Config().get("size")})
        self.register_outputs({})


with pathlib.Path(os.environ["RAN"]).open("a") as log:
    log.write("ran\\n")
if full := os.environ.get("FILLS"):
    try:
        pathlib.Path(full, "filler").write_bytes(b"0" * 2**21)
    except OSError:
        pass
for number in range(int(os.environ.get("PARTS", "3"))):
    Part(f"part-{number}")
hold = pathlib.Path(os.environ["RAN"] + ".hold")
while hold.exists():
    time.sleep(0.1)
'''
_UP = "pulumi up --yes --skip-preview --non-interactive"


@pytest.fixture
def environment(engine_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Where the program notes that it ran."""
    return engine_environment | {"RAN": str(tmp_path / "ran")} | ASKS_NOBODY


@pytest.fixture
def stack(tmp_path: Path, environment: dict[str, str]) -> Stack:
    """Its state lies in files."""
    program = tmp_path / "program"
    program.mkdir()
    (program / "__main__.py").write_text(_PROGRAM, encoding="utf-8")
    return Stack(tmp_path / "own", {}, environment, program=program, passphrase="right")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with s3.running(tmp_path_factory.mktemp("aws")) as aws:
        yield aws


@pytest.fixture
def anna(tmp_path: Path, environment: dict[str, str], server: Aws) -> Iterator[Person]:
    """Her state lies in a bucket."""
    own = environment | s3.CREDENTIALS | python_command()
    own |= {"PULUMI_HOME": str(tmp_path / "home"), "PULUMI_BACKEND_URL": server.backend, "PULUMI_CONFIG_PASSPHRASE": ""}
    made = Person(tmp_path / "anna", own)
    made.checkout.mkdir(parents=True)
    (made.checkout / "Pulumi.yaml").write_text("name: team\nruntime: python\n", encoding="utf-8")
    (made.checkout / "__main__.py").write_text(_PROGRAM, encoding="utf-8")
    made.pulumi("stack", "init", "jetson")
    yield made
    server.fault = lambda _: None
    for key in server.objects():
        server.client("s3").delete_object(Bucket=BUCKET, Key=key)


def ran(folder: Path) -> int:
    """How often the program ran."""
    file = folder / "ran"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def up(who: Person, expect: int | None = 0) -> str:
    return who.pulumi("up", "--yes", "--skip-preview", "--stack", "jetson", expect=expect)


def test_a_disk_that_takes_no_state_is_an_error_and_the_state_before_is_whole(stack: Stack, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount in a namespace of its own")
    stack.up()
    state, kept = stack.folder / "state", tmp_path / "kept"
    state.rename(kept)
    state.mkdir()
    # What breaks it, what is said, and how often the program then runs, with the run that converges: full or read-only
    # state is refused before it does, and where it fills the disk itself it ran.
    breaks = {
        "full": (f"head -c 2M /dev/zero >{state}/filler 2>/dev/null", "no space left on device", 1),
        "read-only": (f"mount -o remount,ro {state}", "read-only file system", 1),
        "full-while-it-runs": (f"export FILLS={state}", "no space left on device", 2),
    }
    at = f"--stack {stack.name} --cwd {stack.folder}"
    script = f"mount -t tmpfs -o size=1m tmpfs {state} && cp -a {kept}/. {state} || exit 99\n" + "".join(
        f"echo '== {name}'; : >{tmp_path}/ran\n"
        f"{command}\n"
        f"pulumi config set size {name} {at}\n"
        f"{_UP} {at}; echo first: $?\n"
        f"unset FILLS; mount -o remount,rw {state}; rm -f {state}/filler\n"
        f"pulumi stack export {at} >{tmp_path}/{name}.json || exit 98\n"
        f"pulumi cancel --yes {at} >/dev/null 2>&1\n"
        f"{_UP} {at}; echo second: $?\n"
        f"cp {tmp_path}/ran {tmp_path}/{name}.ran\n"
        for name, (command, _, _) in breaks.items()
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=dict(stack.environment),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    outputs = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    for name, (_, says, runs) in breaks.items():
        assert "first: 0" not in outputs[name]
        assert says in outputs[name]
        exported = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        parts = [resource for resource in exported["deployment"]["resources"] if resource["type"] == "test:index:Part"]
        assert len(parts) == 3, name
        assert "second: 0" in outputs[name]
        assert len((tmp_path / f"{name}.ran").read_text(encoding="utf-8").splitlines()) == runs, name


def test_a_wrong_passphrase_stops_before_the_program_runs(stack: Stack, tmp_path: Path) -> None:
    stack.set_secret("kai-anywhere:password", "only the team knows")
    stack.up()
    before = stack.run("stack", "export").output
    right = stack.environment
    stack.environment = right | {"PULUMI_CONFIG_PASSPHRASE": "wrong"}
    for arguments in (["up", "--yes", "--skip-preview"], ["destroy", "--yes", "--skip-preview"]):
        run = stack.run(*arguments, expect=None)
        assert run.code != 0
        assert "incorrect passphrase" in run.output
        assert "only the team knows" not in run.output
    assert ran(tmp_path) == 1
    stack.environment = right
    assert stack.run("stack", "export").output == before
    assert set(stack.up().changes) == {"same"}


def _error(code: str) -> str:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'


def test_a_bucket_that_refuses_the_request_or_that_nobody_serves_fails_before_the_program_runs(
    anna: Person, server: Aws, tmp_path: Path
) -> None:
    """What S3 answers where the machine's clock is wrong, and where the credentials are; and no S3 at all."""
    for code in ("RequestTimeTooSkewed", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        server.fault = lambda request, code=code: (403, _error(code)) if BUCKET in request.path else None  # type: ignore[misc]
        assert code in up(anna, expect=None)
    server.fault = lambda _: None
    [port] = free_ports(1)
    address = server.backend.replace(server.url, f"http://127.0.0.1:{port}")
    nobody = replace(anna, environment={**anna.environment, "PULUMI_BACKEND_URL": address})
    assert "connection refused" in up(nobody, expect=None)
    assert ran(tmp_path) == 0
    assert "4 created" in up(anna)


def test_a_bucket_that_fails_for_longer_than_it_is_retried_ends_the_run_and_the_next_converges(
    anna: Person, server: Aws, tmp_path: Path
) -> None:
    """The lock and the first checkpoint are written; then nothing is, to the end of the run."""
    # pulumi (3.259, backend/diy/state.go) tries each checkpoint for half a minute, one after the other, and a part has
    # several.
    anna = replace(anna, environment={**anna.environment, "PARTS": "1"})
    up(anna)
    before = server.objects()[".pulumi/stacks/team/jetson.json"]
    failures: list[Request] = []

    def from_now_on(request: Request) -> tuple[int, str] | None:
        if ran(tmp_path) == 2 and request.method == "PUT" and "/stacks/team/jetson.json" in request.path:
            failures.append(request)
            return 500, _error("InternalError")
        return None

    anna.pulumi("config", "set", "size", "2", "--stack", "jetson")
    server.fault = from_now_on
    output = up(anna, expect=None)
    assert "InternalError" in output
    assert len(failures) > 2
    server.fault = lambda _: None
    assert server.objects()[".pulumi/stacks/team/jetson.json"] == before
    assert "1 updated" in up(anna)
    assert "2 unchanged" in up(anna)


def test_a_lock_taken_away_under_a_run_costs_another_run_and_no_part_is_there_twice(
    anna: Person, tmp_path: Path
) -> None:
    """What the page of recovery warns of: a run that is at work is taken for a dead one."""
    hold = tmp_path / "ran.hold"
    hold.touch()
    command = [*_UP.split(), "--stack", "jetson", "--cwd", str(anna.checkout)]
    with subprocess.Popen(
        command, env=dict(anna.environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        try:
            eventually(lambda: ran(tmp_path) == 1, within_seconds=180)
            assert "currently locked" in up(anna, expect=None)
            anna.pulumi("cancel", "--yes", "--stack", "jetson")
        finally:
            hold.unlink()
        up(anna)
        first.wait(timeout=300)
    anna.pulumi("cancel", "--yes", "--stack", "jetson")
    up(anna)
    assert "4 unchanged" in up(anna)
    exported = json.loads(anna.pulumi("stack", "export", "--stack", "jetson"))["deployment"]
    urns = [resource["urn"] for resource in exported["resources"]]
    assert len(urns) == len(set(urns)) == 4
    # What the loser had begun may stay noted, as after a killed run; a refresh forgets it.
    anna.pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", "jetson")
    healed = json.loads(anna.pulumi("stack", "export", "--stack", "jetson"))["deployment"]
    assert not healed.get("pending_operations")
    assert {resource["urn"] for resource in healed["resources"]} == set(urns)
