"""A team's state on S3 with secrets by KMS: the real pulumi CLI against moto's server, over HTTP."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed.engine import ASKS_NOBODY, python_command
from testbed.stacks import ROOT
from testbed.waiting import eventually
from tests.support import s3
from tests.support.s3 import ACCESS_DENIED, BUCKET, CREDENTIALS, KMS_ACCESS_DENIED, Aws, Fault, Person, Request

SECRET = "only the team knows"
PROGRAM = '''
"""Stands for a program that changes a cluster: it notes that it ran."""
import pathlib
import time

import pulumi

config = pulumi.Config()


class Part(pulumi.ComponentResource):
    def __init__(self, name: str) -> None:
        super().__init__("test:index:Part", name, {"size": config.get_int("size")})
        self.register_outputs({})


with pathlib.Path(config.require("ran")).open("a") as log:
    log.write("ran\\n")
for number in range(3):
    Part(f"part-{number}")
if hold := config.get("hold"):
    while pathlib.Path(hold).exists():
        time.sleep(0.1)
pulumi.export("password", config.require_secret("password"))
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with s3.running(tmp_path_factory.mktemp("aws")) as aws:
        yield aws


@pytest.fixture
def aws(server: Aws) -> Iterator[Aws]:
    """An empty bucket, and no faults."""
    yield server
    server.fault = lambda _: None
    client = server.client("s3")
    for key in server.objects():
        client.delete_object(Bucket=BUCKET, Key=key)


def person(folder: Path, environment: dict[str, str], backend: str | None) -> Person:
    """Somebody with a checkout of the project, logged in to a backend or to none yet."""
    own = environment | CREDENTIALS
    own |= {
        "PULUMI_HOME": str(folder / "pulumi-home"),
        **ASKS_NOBODY,
        **python_command(),
        "USER": folder.name,
    }
    for name in ("KUBECONFIG", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_BACKEND_URL"):
        own.pop(name, None)
    if backend is not None:
        own["PULUMI_BACKEND_URL"] = backend
    made = Person(folder, own)
    made.checkout.mkdir(parents=True)
    (made.checkout / "Pulumi.yaml").write_text("name: team\nruntime: python\n", encoding="utf-8")
    (made.checkout / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    return made


@pytest.fixture
def anna(tmp_path: Path, engine_environment: dict[str, str], aws: Aws) -> Person:
    """Who makes the stack."""
    made = person(tmp_path / "anna", engine_environment, aws.backend)
    made.pulumi("stack", "init", "jetson", "--secrets-provider", aws.key)
    made.pulumi("config", "set", "--secret", "password", SECRET)
    made.pulumi("config", "set", "ran", str(tmp_path / "ran"))
    return made


@pytest.fixture
def ben(tmp_path: Path, engine_environment: dict[str, str], aws: Aws, anna: Person) -> Person:
    """Who got the stack's file from version control."""
    made = person(tmp_path / "ben", engine_environment, aws.backend)
    share(anna, made)
    return made


def share(one: Person, other: Person) -> None:
    """What is committed of a stack."""
    (other.checkout / "Pulumi.jetson.yaml").write_bytes((one.checkout / "Pulumi.jetson.yaml").read_bytes())


def up(who: Person, expect: int | None = 0) -> str:
    return who.pulumi("up", "--yes", "--skip-preview", "--stack", "jetson", expect=expect)


def runs(folder: Path) -> int:
    """How often the program ran."""
    file = folder / "ran"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def test_a_second_person_sees_the_state_and_changes_nothing(anna: Person, ben: Person) -> None:
    assert "4 created" in up(anna)
    assert "4 unchanged" in up(ben)
    assert json.loads(ben.pulumi("stack", "output", "--json", "--show-secrets", "--stack", "jetson")) == {
        "password": SECRET
    }


def test_the_stack_file_names_the_key_and_holds_no_plain_secret(anna: Person, aws: Aws) -> None:
    text = (anna.checkout / "Pulumi.jetson.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    assert content["secretsprovider"] == aws.key
    assert content["encryptedkey"]
    assert SECRET not in text


def test_the_bucket_holds_no_plain_secret(anna: Person, aws: Aws) -> None:
    up(anna)
    objects = aws.objects()
    assert ".pulumi/stacks/team/jetson.json" in objects
    assert not [key for key, body in objects.items() if SECRET.encode() in body]


def test_without_the_key_the_secrets_are_unreadable_and_nothing_runs(
    anna: Person, ben: Person, aws: Aws, tmp_path: Path
) -> None:
    up(anna)
    before, state = runs(tmp_path), aws.objects()
    aws.fault = lambda request: KMS_ACCESS_DENIED if request.action.endswith(".Decrypt") else None
    for command in (
        ["stack", "output", "--show-secrets"],
        ["config", "get", "password"],
        ["up", "--yes", "--skip-preview"],
    ):
        output = ben.pulumi(*command, "--stack", "jetson", expect=None)
        assert "not authorized to perform: kms:Decrypt" in output
        assert SECRET not in output
    assert runs(tmp_path) == before
    aws.fault = lambda _: None
    assert aws.objects() == state


def test_two_at_once_one_is_told_who_works_on_the_stack(anna: Person, ben: Person, aws: Aws, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    anna.pulumi("config", "set", "hold", str(hold))
    command = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", "jetson"]
    with subprocess.Popen(
        [*command, "--cwd", str(anna.checkout)],
        env=dict(anna.environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            eventually(lambda: runs(tmp_path) == 1, within_seconds=180)
            output = up(ben, expect=None)
            assert "the stack is currently locked by 1 lock(s)" in output
            assert f"(pid {running.pid})" in output
            assert "created by anna@" in output or f"created by {_user()}@" in output
            assert runs(tmp_path) == 1
        finally:
            hold.unlink()
        assert running.wait(timeout=300) == 0
    assert "4 unchanged" in up(ben)
    assert not [key for key in aws.objects() if "/locks/" in key]


def test_a_lock_of_a_dead_run_is_taken_away_by_cancel(anna: Person, ben: Person, aws: Aws) -> None:
    up(anna)
    lock = json.dumps({"pid": 1, "username": "anna", "hostname": "gone", "timestamp": "2026-01-02T03:04:05Z"})
    aws.client("s3").put_object(Bucket=BUCKET, Key=".pulumi/locks/organization/team/jetson/0.json", Body=lock)
    assert "created by anna@gone (pid 1)" in up(ben, expect=None)
    ben.pulumi("cancel", "--yes", "--stack", "jetson")
    assert "4 unchanged" in up(ben)


def test_a_passing_failure_of_s3_is_retried(anna: Person, aws: Aws, tmp_path: Path) -> None:
    statuses = [500, 503]
    failures: list[Request] = []

    def twice(request: Request) -> tuple[int, str] | None:
        if request.method == "PUT" and "jetson.json" in request.path and len(failures) < len(statuses):
            failures.append(request)
            return statuses[len(failures) - 1], "<Error><Code>SlowDown</Code><Message>busy</Message></Error>"
        return None

    aws.fault = twice
    assert "4 created" in up(anna)
    assert len(failures) == len(statuses)
    assert runs(tmp_path) == 1
    assert "4 unchanged" in up(anna)


def test_an_s3_that_stays_down_fails_before_anything_is_changed(anna: Person, aws: Aws, tmp_path: Path) -> None:
    def down(status: int) -> Fault:
        return lambda request: (status, "") if BUCKET in request.path else None

    state = aws.objects()
    for status in (500, 503):
        aws.fault = down(status)
        output = up(anna, expect=None)
        assert str(status) in output
        assert runs(tmp_path) == 0, status
        aws.fault = lambda _: None
        assert aws.objects() == state, status
    assert "4 created" in up(anna)


def test_a_denied_bucket_fails_before_anything_is_changed(anna: Person, aws: Aws, tmp_path: Path) -> None:
    aws.fault = lambda request: ACCESS_DENIED if BUCKET in request.path else None
    assert "AccessDenied" in up(anna, expect=None)
    assert runs(tmp_path) == 0


def test_a_role_that_only_reads_can_not_take_the_lock_and_changes_nothing(
    anna: Person, aws: Aws, tmp_path: Path
) -> None:
    aws.fault = lambda request: ACCESS_DENIED if request.method == "PUT" and BUCKET in request.path else None
    assert "AccessDenied" in up(anna, expect=None)
    assert runs(tmp_path) == 0
    assert "4 to create" in anna.pulumi("preview", "--stack", "jetson")


def test_a_missing_bucket_is_named_before_anything_is_changed(
    aws: Aws, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    carl = person(tmp_path / "carl", engine_environment, aws.backend.replace(BUCKET, "no-such-bucket"))
    output = carl.pulumi("stack", "init", "jetson", "--secrets-provider", aws.key, expect=None)
    assert "NoSuchBucket" in output
    assert runs(tmp_path) == 0


def test_a_url_of_another_cli_version_is_refused_by_name(
    aws: Aws, tmp_path: Path, engine_environment: dict[str, str]
) -> None:
    carl = person(tmp_path / "carl", engine_environment, aws.backend + "&s3_force_path_style=true")
    output = carl.pulumi("stack", "ls", expect=None)
    assert 'unknown query parameter "s3_force_path_style"' in output


def test_a_broken_checkpoint_is_restored_from_the_backup(anna: Person, ben: Person, aws: Aws) -> None:
    up(anna)
    anna.pulumi("config", "set", "size", "2")
    assert "3 updated" in up(anna)
    share(anna, ben)
    client, key = aws.client("s3"), ".pulumi/stacks/team/jetson.json"
    whole = aws.objects()
    client.put_object(Bucket=BUCKET, Key=key, Body=whole[key][: len(whole[key]) // 2])
    assert "failed to load checkpoint" in up(ben, expect=None)
    client.put_object(Bucket=BUCKET, Key=key, Body=whole[f"{key}.bak"])
    # The backup is one step older than the checkpoint: the next run makes up for it.
    up(ben)
    assert "4 unchanged" in up(anna)


def _user() -> str:
    return subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()


def test_the_commands_of_the_teams_guide_work(aws: Aws, tmp_path: Path, engine_environment: dict[str, str]) -> None:
    page = (ROOT / "docs" / "teams.md").read_text(encoding="utf-8")
    first, second = (block for block in re.findall(r"(?ms)^```bash\n(.*?)^```$", page) if "pulumi login" in block)
    anna, ben = (person(tmp_path / name, engine_environment, None) for name in ("anna", "ben"))
    _shell(anna, _on_loopback(first, aws))
    anna.pulumi("config", "set", "--secret", "password", SECRET, "--stack", "jetson")
    anna.pulumi("config", "set", "ran", str(tmp_path / "ran"), "--stack", "jetson")
    share(anna, ben)
    assert "4 to create" in _shell(ben, _on_loopback(second, aws))


def _on_loopback(script: str, aws: Aws) -> str:
    """The guide's addresses turned to moto's server."""
    changed = re.sub(r"'((?:s3|awskms)://[^']+)'", lambda match: f"'{s3.on_server(match[1], aws.url)}'", script)
    assert changed != script
    return changed


def _shell(who: Person, script: str) -> str:
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=who.checkout,
        env=dict(who.environment) | {"PULUMI_SKIP_CONFIRMATIONS": "true"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
