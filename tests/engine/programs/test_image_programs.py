"""Programs out of images of a registry on loopback, with the real crane: fetched once, checked, and kept."""

import base64
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import kai
from manifests.versions import KAI_SCHEDULER
from testbed.stacks import ROOT
from tests.support.docs import command
from tests.support.registry_server import Registry, archive, file, link, running
from toolchain import ToolchainError, cache, registry
from toolchain.image_programs import ImageProgram, from_image
from toolchain.official import this_platform
from toolchain.registry import Crane

pytestmark = [
    pytest.mark.skipif(this_platform().system != "linux", reason="images hold programs for Linux"),
]

_HERE = this_platform().processor
_OTHER = "arm64" if _HERE == "amd64" else "amd64"
_TRUE = Path("/bin/true").read_bytes() if Path("/bin/true").exists() else b""
_FALSE = Path("/bin/false").read_bytes() if Path("/bin/false").exists() else b""
# As KAI's own.
_CONTAINER = {
    "Entrypoint": ["/workspace/app"],
    "Cmd": ["--help"],
    "Env": ["PATH=/usr/bin:/bin", "SERVICE_NAME=binder", "EMPTY="],
    "WorkingDir": "/workspace",
    "User": "65532:65532",
}
_SECONDS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Registry]:
    with running() as started:
        yield started


@pytest.fixture
def there(server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry, empty again; this machine has no programs of images and no logins yet."""
    crane = Crane.installed()
    for part in (server.asked, server.content, server.private, server.stalled):
        part.clear()
    server.status = None
    monkeypatch.setenv(cache.LOCATION_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr(Crane, "installed", lambda: crane)
    return server


def _kai(there: Registry, program: bytes = _TRUE, *, tag: str = "v1") -> str:
    """An image of KAI's form, for two processors; gives its digest."""
    base = archive([file("etc/os-release", b"distroless")])
    by_processor = {
        processor: there.image(
            "kai/binder",
            f"{tag}-{processor}",
            base,
            archive([file("workspace/app", content)]),
            architecture=processor,
            container=_CONTAINER,
        )
        for processor, content in ((_HERE, program), (_OTHER, b"for the other"))
    }
    return there.images("kai/binder", tag, by_processor)


def _run(program: ImageProgram) -> int:
    return subprocess.run([program.path], check=False, timeout=_SECONDS).returncode


def _fetched(there: Registry) -> list[str]:
    return [path for path in there.asked if "/blobs/" in path]


def test_the_program_for_this_processor_comes_out_with_what_its_containers_say(there: Registry) -> None:
    _kai(there)
    program = from_image(f"{there.host}/kai/binder:v1")
    assert _run(program) == 0
    assert program.path.name == "binder"
    assert program.path.read_bytes() == _TRUE
    assert program.path.stat().st_mode & 0o7777 == 0o755
    assert program.arguments == ()
    assert program.default_arguments == ("--help",)
    assert program.environment == {"PATH": "/usr/bin:/bin", "SERVICE_NAME": "binder", "EMPTY": ""}
    assert program.working_directory == "/workspace"
    manifest, body = there.content[f"/v2/kai/binder/manifests/v1-{_HERE}"]
    assert program.source.startswith(f"{there.host}/kai/binder@sha256:"), manifest
    assert there.content[f"/v2/kai/binder/manifests/{program.source.partition('@')[2]}"][1] == body
    assert sorted(path.name for path in program.path.parent.iterdir()) == ["binder", "configuration.json"]


def test_an_image_that_was_pushed_to_another_registry_works_alike(there: Registry, tmp_path: Path) -> None:
    """go-containerregistry's own registry, and an image of Docker's older media types, as crane makes them."""
    crane = str(Crane.installed().program)
    (tmp_path / "layer.tar").write_bytes(archive([file("workspace/app", _TRUE)]))
    call = [crane, "registry", "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as other:
        assert other.stderr is not None
        try:
            port = next(line.split()[-1] for line in other.stderr if "serving on port" in line)
            image = f"127.0.0.1:{port}/kai/binder:v1"
            for arguments in (
                ["append", "--new_layer", str(tmp_path / "layer.tar"), "--new_tag", image],
                ["mutate", image, "--entrypoint", "/workspace/app", "--set-platform", f"linux/{_HERE}", "--tag", image],
            ):
                subprocess.run([crane, *arguments], check=True, capture_output=True, timeout=_SECONDS)
            program = from_image(image)
        finally:
            other.kill()
    assert _run(program) == 0
    assert program.source.startswith(f"127.0.0.1:{port}/kai/binder@sha256:")
    assert there.asked == []


def test_what_is_there_is_used_without_asking_the_registry(there: Registry) -> None:
    _kai(there)
    first = from_image(f"{there.host}/kai/binder:v1")
    there.asked.clear()
    there.status = 500
    assert from_image(f"{there.host}/kai/binder:v1") == first
    assert there.asked == []


def test_a_tag_that_moved_is_noticed_only_when_it_is_asked_for_anew(there: Registry) -> None:
    _kai(there)
    image = f"{there.host}/kai/binder:v1"
    before = from_image(image)
    _kai(there, _FALSE)
    assert from_image(image) == before
    after = from_image(image, anew=True)
    assert (_run(before), _run(after)) == (0, 1)
    assert from_image(image) == after, "the new answer is the one that is noted"


def test_two_names_of_one_digest_are_fetched_once(there: Registry) -> None:
    digest = _kai(there)
    tagged = from_image(f"{there.host}/kai/binder:v1")
    there.asked.clear()
    assert from_image(f"{there.host}/kai/binder@{digest}") == tagged
    assert from_image(f"{there.host}/kai/binder:other@{digest}") == tagged, "a digest counts more than a tag"
    assert _fetched(there) == []


def test_another_content_than_the_digest_says_is_refused(there: Registry, tmp_path: Path) -> None:
    _kai(there)
    digest = "sha256:" + "0" * 64
    there.content[f"/v2/kai/binder/manifests/{digest}"] = there.content["/v2/kai/binder/manifests/v1"]
    with pytest.raises(ToolchainError, match="does not match"):
        from_image(f"{there.host}/kai/binder@{digest}")
    assert list((tmp_path / "cache").rglob("binder")) == []


@pytest.mark.parametrize("damage", ["bit", "swap", "short", "gone"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_layer_is_refused_and_leaves_nothing(
    there: Registry, tmp_path: Path, damage: str, number: int
) -> None:
    _kai(there)
    layer = there.layer("kai/binder", f"v1-{_HERE}", number)
    kind, body = there.content[layer]
    there.image("another", "v1", archive([file("workspace/app", b"evil"), file("etc/os-release", b"evil")]))
    damaged = {
        "bit": body[:-9] + bytes([body[-9] ^ 1]) + body[-8:],
        "swap": there.content[there.layer("another", "v1", 0)][1],
        "short": body[:-20],
    }
    if damage == "gone":
        del there.content[layer]
    else:
        there.content[layer] = (kind, damaged[damage])
    with pytest.raises(ToolchainError, match=r"The program of the image .* can't be had") as refused:
        from_image(f"{there.host}/kai/binder:v1")
    assert "KAI_PROGRAMS" in str(refused.value)
    assert list((tmp_path / "cache").rglob("binder")) == []
    assert [path for path in (tmp_path / "cache" / "toolchain").iterdir() if path.name.startswith("image-")] == [
        path for path in (tmp_path / "cache" / "toolchain").iterdir() if path.suffix == ".lock"
    ], "unfinished work is removed"
    there.content[layer] = (kind, body)
    assert _run(from_image(f"{there.host}/kai/binder:v1")) == 0, "the next run begins again"


@pytest.mark.parametrize("path", ["manifest", "layer"])
def test_a_registry_that_stalls_is_given_up(there: Registry, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(registry, "_ASK_SECONDS", 1.0)
    monkeypatch.setattr(registry, "_SILENT_SECONDS", 1.0)
    _kai(there, os.urandom(1 << 20))
    stalled = {"manifest": "/v2/kai/binder/manifests/v1", "layer": there.layer("kai/binder", f"v1-{_HERE}", 1)}[path]
    there.stalled.add(stalled)
    began = time.monotonic()
    with pytest.raises(ToolchainError, match=f"{there.host} (did not answer within|sent nothing for) 1 s"):
        from_image(f"{there.host}/kai/binder:v1")
    assert time.monotonic() - began < _SECONDS / 2
    assert stalled in there.asked


def test_a_login_of_the_user_is_used_and_without_one_the_way_to_it_is_said(there: Registry, tmp_path: Path) -> None:
    _kai(there)
    there.private["kai/binder"] = "reader:secret"
    image = f"{there.host}/kai/binder:v1"
    with pytest.raises(ToolchainError, match="shows it only to those who log in") as refused:
        from_image(image)
    assert f"docker login {there.host}" in str(refused.value)
    config = tmp_path / "docker" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"auths": {there.host: {"auth": base64.b64encode(b"reader:wrong").decode()}}}))
    with pytest.raises(ToolchainError, match="shows it only to those who log in"):
        from_image(image)
    config.write_text(json.dumps({"auths": {there.host: {"auth": base64.b64encode(b"reader:secret").decode()}}}))
    assert _run(from_image(image)) == 0


def test_a_login_of_podman_is_used_where_docker_has_no_file(
    there: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kai(there)
    there.private["kai/binder"] = "reader:secret"
    image = f"{there.host}/kai/binder:v1"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    podman, docker = tmp_path / "containers" / "auth.json", tmp_path / "docker" / "config.json"
    for file_of_logins in (podman, docker):
        file_of_logins.parent.mkdir()
    podman.write_text(json.dumps({"auths": {there.host: {"auth": base64.b64encode(b"reader:secret").decode()}}}))
    docker.write_text("{}")
    with pytest.raises(ToolchainError, match=r"where there is no ~/\.docker/config\.json, `podman login"):
        from_image(image)
    docker.unlink()
    assert _run(from_image(image)) == 0


def test_what_is_not_there_is_said(there: Registry) -> None:
    _kai(there)
    with pytest.raises(ToolchainError, match=f"{there.host} has no such image") as refused:
        from_image(f"{there.host}/kai/binder:v2")
    assert "login" not in str(refused.value), "it would not help"
    with pytest.raises(ToolchainError, match=r"can't be asked: .*refused"):
        from_image("127.0.0.1:1/kai/binder:v1")
    with pytest.raises(ToolchainError, match="could not parse reference"):
        from_image(f"{there.host}/KAI/Binder:v1")
    there.status = 418
    with pytest.raises(ToolchainError, match=r"answers: .*418"):
        from_image(f"{there.host}/kai/binder:v1")


def test_an_image_for_other_processors_alone_is_refused(there: Registry) -> None:
    container = {"Entrypoint": ["/app"]}
    other = there.image("kai/one", "v1", archive([file("app", _TRUE)]), architecture=_OTHER, container=container)
    there.images("kai/one", "several", {_OTHER: other})
    with pytest.raises(ToolchainError, match=f"the image is for linux/{_OTHER}, and this machine is linux/{_HERE}"):
        from_image(f"{there.host}/kai/one:v1")
    with pytest.raises(ToolchainError, match=f"no child with platform linux/{_HERE}"):
        from_image(f"{there.host}/kai/one:several")


def test_upper_layers_replace_and_remove_what_is_below(there: Registry) -> None:
    container = {"Entrypoint": ["app"], "Env": ["PATH=/opt/bin:/usr/bin"]}
    below = archive([file("opt/bin/app", _FALSE), file("usr/bin/app", _FALSE)])
    above = archive([file("opt/bin/.wh.app"), file("usr/bin/app", _TRUE)])
    there.image("kai/layers", "v1", below, above, architecture=_HERE, container=container)
    assert _run(from_image(f"{there.host}/kai/layers:v1")) == 0


@pytest.mark.parametrize(
    "members",
    [
        [link("app", "bin/real"), file("bin/real", _TRUE)],
        [link("app", "/bin/real"), file("bin/real", _TRUE)],
        [link("app", "usr/app"), link("usr/app", "bin/real", tarfile.LNKTYPE), file("bin/real", _TRUE)],
        [link("bin", "usr/bin"), link("app", "/bin/real"), file("usr/bin/real", _TRUE)],
        [link("app", "/../../bin/real"), file("bin/real", _TRUE)],
        [file("./app", _TRUE, mode=0o6755)],
        [file("/app", _TRUE)],
        [link("//app", "/bin/real"), file("/bin/real", _TRUE)],
    ],
)
def test_links_lead_through_the_image(there: Registry, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    there.image("links", "v1", archive(members), architecture=_HERE, container={"Entrypoint": ["/app"]})
    program = from_image(f"{there.host}/links:v1")
    assert _run(program) == 0
    assert not program.path.is_symlink()
    assert program.path.stat().st_mode & 0o7777 == 0o755, "no bit of the image's reaches this machine"


@pytest.mark.parametrize(
    "members",
    [
        [link("app", "/etc/passwd")],
        [link("app", "../../../../../../etc/passwd")],
        [link("app", "app")],
        [link("app", "/etc/passwd", tarfile.LNKTYPE)],
        [link("app", "/dev/null", tarfile.CHRTYPE)],
        [file("../app", _TRUE)],
        [file("../../../../../../tmp/app", _TRUE), file("usr/app", _TRUE)],
        [],
    ],
)
def test_no_archive_reaches_this_machines_files(
    there: Registry, tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    there.image("links", "v1", archive(members), architecture=_HERE, container={"Entrypoint": ["/app"]})
    with pytest.raises(ToolchainError, match=r"has no file /app|unsafe tar path"):
        from_image(f"{there.host}/links:v1")
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".lock", ".json")]
    assert written == []


def test_an_image_without_a_program_of_its_own_is_refused(there: Registry) -> None:
    there.image("empty", "v1", archive([file("app", _TRUE)]), architecture=_HERE)
    script = archive([file("apply.sh", b"#!/bin/bash\n")])
    there.image("script", "v1", script, architecture=_HERE, container={"Cmd": ["/apply.sh"]})
    with pytest.raises(ToolchainError, match="does not say which program its containers run"):
        from_image(f"{there.host}/empty:v1")
    with pytest.raises(ToolchainError, match="it is a script, which needs other files of its image"):
        from_image(f"{there.host}/script:v1")


def _start(command: list[str]) -> subprocess.Popen[str]:
    variables = os.environ | {"PATH": f"{Crane.installed().program.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.Popen(command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_the_guides_command_shows_where_the_program_lies(there: Registry) -> None:
    repository = kai.REGISTRY.partition("/")[2]
    there.image(
        f"{repository}/binder",
        KAI_SCHEDULER.version,
        archive([file("workspace/app", _TRUE)]),
        architecture=_HERE,
        container=_CONTAINER,
    )
    image = f"{kai.REGISTRY}/binder:{KAI_SCHEDULER.version}"
    line = command("air-gapped.md", f".venv/bin/python -m toolchain image {image}")
    words = line.replace(kai.REGISTRY, f"{there.host}/{repository}").split()
    run = _start([sys.executable, *words[1:]])
    shown = run.communicate(timeout=_SECONDS)[0]
    assert run.returncode == 0
    there.status = 500
    program = from_image(words[-1])
    assert shown == f"{program.path}\n  from {program.source}\n"


def test_runs_at_the_same_time_fetch_once(there: Registry) -> None:
    _kai(there)
    image = f"{there.host}/kai/binder:v1"
    runs = [_start([sys.executable, "-m", "toolchain", "image", image]) for _ in range(4)]
    said = {run.communicate(timeout=_SECONDS)[0] for run in runs}
    assert [run.returncode for run in runs] == [0] * 4
    there.status = 500
    program = from_image(image)
    assert said == {f"{program.path}\n  from {program.source}\n"}
    layers = [there.layer("kai/binder", f"v1-{_HERE}", number) for number in (0, 1)]
    assert [there.asked.count(layer) for layer in layers] == [1, 1]
