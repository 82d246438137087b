"""The nvidia runtime beside runc, judged by what real containerds make of the files."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from agents.host.look.effective import Effective
from agents.host.look.toml_dump import flatten
from config.cluster import Distribution
from tests.hosts.conftest import equip
from tests.support.docs import command
from tests.support.hosts.roots import (
    MAIN_V2,
    MAIN_V3,
    Board,
    HostRoot,
    Serve,
    desired,
    install_kubernetes,
    install_toolkit,
    prepare,
)
from tests.support.programs import CONTAINERD, NVIDIA_CTK
from toolchain import Program

pytestmark = pytest.mark.engine

_WANTED = desired(Board.JETPACK_6, toolkit={"owner": "host", "mode": "csv"})
_RESTART = {
    Distribution.KUBEADM: "systemctl restart containerd",
    Distribution.K8S_SNAP: "snap restart k8s.containerd",
    Distribution.MICROK8S: "snap restart microk8s.daemon-containerd",
}
_CONFIG = {
    Distribution.KUBEADM: "/etc/containerd/config.toml",
    Distribution.K8S_SNAP: "/var/lib/k8s-base/etc/containerd/config.toml",
    Distribution.MICROK8S: "/var/snap/microk8s/current/args/containerd-template.toml",
}

_IN_PLACE = """
import sys, tomllib
arguments = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with open(arguments["--config"], "r+", encoding="utf-8") as file:
    (plugin,) = (name for name in tomllib.loads(file.read())["plugins"] if "cri" in name.split("."))
    table = f"[plugins.'{plugin}'.containerd.runtimes.nvidia"
    print(table + "]", 'runtime_type = "io.containerd.runc.v2"', sep="\\n", file=file)
    program = arguments["--nvidia-runtime-path"]
    print(table + ".options]", f'BinaryName = "{program}"', "SystemdCgroup = true", sep="\\n", file=file)
"""
"""What nvidia-ctk before 1.18, as JetPack 6 ships it, does: the runtime is added to the named file, all else stays."""


def _host(folder: Path, distribution: Distribution, main: str = MAIN_V2) -> HostRoot:
    host = prepare(folder / "host", Board.JETPACK_6)
    install_kubernetes(host, distribution, main)
    install_toolkit(host)
    return host


def _effective(host: HostRoot, distribution: Distribution, containerd: Path, scratch: Path) -> Effective:
    """What a containerd that lives in the root would run with: the files as they are, paths moved into the root."""
    text = host.read(_CONFIG[distribution])
    folder = _CONFIG[distribution].rpartition("/")[0]
    moved = text.replace(f'"{folder}/conf.d', f'"{host.path(folder)}/conf.d')
    if "imports" not in moved:
        moved = "imports = []\n" + moved
    moved = re.sub(r"\$\{RUNTIME\}", "runc", re.sub(r"\$\{RUNTIME_TYPE\}", "io.containerd.runc.v2", moved))
    scratch.write_text(moved)
    done = subprocess.run(
        [containerd, "--config", scratch, "config", "dump"], capture_output=True, text=True, check=True, timeout=60
    )
    return Effective(done.stdout, flatten(done.stdout))


def _effective_in_place(host: HostRoot, containerd: Path) -> Effective:
    """Likewise, with the files where a containerd on that host would read them, beside each other."""
    folder = host.folder.parent / "in-force"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(host.path("/etc/containerd"), folder, ignore_dangling_symlinks=True)
    for file in (path for path in folder.rglob("*") if path.is_file()):
        file.write_text(file.read_text().replace("/etc/containerd/", f"{folder}/"))
    done = subprocess.run(
        [containerd, "--config", folder / "config.toml", "config", "dump"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return Effective(done.stdout, flatten(done.stdout))


def _value(effective: Effective, *ends: tuple[str, ...]) -> str:
    """The value whose key ends in one of the ways; the versions name it differently."""
    (value,) = {str(value) for key, value in effective.flat.items() for end in ends if key[-len(end) :] == end}
    return value


_V2 = [pytest.param(line, distribution, MAIN_V2) for line in ("1.x", "2.x") for distribution in _RESTART]


@pytest.mark.parametrize(
    ("containerd", "distribution", "main"),
    # Version 3 is containerd 2's; the snaps write version 2.
    [*_V2, pytest.param("2.x", Distribution.KUBEADM, MAIN_V3)],
    indirect=["containerd"],
    ids=lambda value: value.partition("[")[0].strip().replace("\n", " ").removeprefix("# kept by hand ").strip(),
)
def test_both_runtimes_are_in_force_and_everything_else_is_as_before(  # noqa: PLR0913, PLR0917 - fixtures
    distribution: Distribution,
    main: str,
    containerd: Path,
    programs: Mapping[Program, Path],
    serve: Serve,
    tmp_path: Path,
) -> None:
    host = _host(tmp_path, distribution, main)
    calls = serve(host, distribution)
    equip(host, distribution, programs[NVIDIA_CTK], containerd, calls)
    before = _effective(host, distribution, containerd, tmp_path / "before.toml")
    untouched = host.snapshot()

    dry = host.run("configure", "--dry-run", desired=_WANTED)
    assert (dry.code, dry.answer["changed"], dry.answer["restarted"]) == (0, True, []), dry.errors
    assert host.snapshot() == untouched
    assert "+" in dry.answer["steps"][1]["files"][0]["diff"]
    assert host.run("check", desired=_WANTED).code == 3

    done = host.run("configure", desired=_WANTED)
    assert done.code == 0, done.errors
    assert calls.read_text().splitlines() == [_RESTART[distribution]]
    after = _effective(host, distribution, containerd, tmp_path / "after.toml")
    assert after.serves_nvidia
    assert after.runtime("runc") == before.runtime("runc")
    assert after.runtime("nvidia").get(("options", "SystemdCgroup")) in {
        before.runtime("runc").get(("options", "SystemdCgroup")),
        None,
    }
    assert after.changed_beside_nvidia(before) == []
    assert _value(after, ("sandbox_image",), ("pinned_images", "sandbox")) == "registry.example.com/pause:3.10"
    assert _value(after, ("registry", "config_path")).endswith("certs.d")
    assert 'mode = "csv"' in host.read("/etc/nvidia-container-runtime/config.toml")

    written = host.snapshot()
    again = host.run("configure", desired=_WANTED)
    assert (again.code, again.answer["changed"], again.answer["restarted"]) == (0, False, [])
    assert host.run("check", desired=_WANTED).code == 0
    assert host.snapshot() == written
    assert len(calls.read_text().splitlines()) == 1

    restored = host.run("restore")
    assert (restored.code, restored.answer["changed"]) == (0, True), restored.errors
    assert host.snapshot() == untouched
    assert calls.read_text().splitlines() == [_RESTART[distribution]] * 2


def test_comments_and_mode_of_the_main_file_stay_and_the_drop_in_is_no_more_readable(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    host.path("/etc/containerd/config.toml").chmod(0o600)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, serve(host, Distribution.KUBEADM))
    assert host.run("configure", desired=_WANTED).code == 0
    assert "# kept by hand" in host.read("/etc/containerd/config.toml")
    for name in ("config.toml", "conf.d/99-nvidia.toml"):
        assert host.path(f"/etc/containerd/{name}").stat().st_mode & 0o777 == 0o600


def test_a_later_file_of_the_admins_keeps_its_say(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.K8S_SNAP)
    host.write(
        "/var/lib/k8s-base/etc/containerd/conf.d/50-site.toml",
        MAIN_V2.replace("pause:3.10", "pause:site"),
    )
    equip(host, Distribution.K8S_SNAP, programs[NVIDIA_CTK], containerd, serve(host, Distribution.K8S_SNAP))
    assert host.run("configure", desired=_WANTED).code == 0
    after = _effective(host, Distribution.K8S_SNAP, containerd, tmp_path / "after.toml")
    assert _value(after, ("sandbox_image",), ("pinned_images", "sandbox")) == "registry.example.com/pause:site"
    assert after.serves_nvidia


def test_a_missing_main_file_is_made_and_taken_away_again(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    host.path("/etc/containerd/config.toml").unlink()
    host.path("/etc/containerd").rmdir()
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, serve(host, Distribution.KUBEADM))
    before = host.snapshot()
    assert host.run("configure", desired=_WANTED).code == 0
    assert _effective(host, Distribution.KUBEADM, containerd, tmp_path / "after.toml").serves_nvidia
    assert host.run("restore").code == 0
    assert host.snapshot() == before


@pytest.mark.parametrize(
    ("main", "says"),
    [
        ('disabled_plugins = ["cri"]\n', "has no `version = 2` or later"),
        ('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', "disables containerd's Kubernetes plugin"),
        ("version = 2\n[plugins\n", "/etc/containerd/config.toml can't be read"),
    ],
    ids=["docker's own", "disabled", "broken"],
)
def test_a_configuration_that_would_ignore_the_runtime_is_refused_and_stays(
    main: str, says: str, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM, main)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], calls)
    before = host.snapshot()
    run = host.run("configure", desired=_WANTED)
    assert run.code == 1
    assert says in run.answer["error"]["message"]
    # The page's command: a login's own shell may not write that file.
    full = command("distributions.md", "containerd config default | sudo tee /etc/containerd/config.toml").strip()
    assert (f"`{full}`" in run.answer["error"]["remedy"]) == ("can't be read" not in says)
    assert host.snapshot() == before
    assert not calls.exists()


@pytest.mark.parametrize("entry", ["folder", "link to nothing"])
def test_what_is_no_file_in_the_folder_of_imports_is_refused_where_containerd_would_not_start_with_it(
    entry: str, containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, calls)
    odd = host.path("/etc/containerd/conf.d/odd.toml")
    odd.parent.mkdir()
    if entry == "folder":
        odd.mkdir()
    else:
        odd.symlink_to("nothing")
    before = host.snapshot()
    run = host.run("configure", desired=_WANTED)
    if entry == "link to nothing" and containerd == programs[CONTAINERD]:
        assert run.code == 0, run.errors
        assert _effective_in_place(host, containerd).serves_nvidia
        assert host.run("restore").code == 0
    else:
        assert run.code == 1
        assert run.answer["error"]["message"].startswith("/etc/containerd/conf.d/odd.toml is no file, so containerd")
        assert not calls.exists()
    assert host.snapshot() == before


def test_a_runtime_that_somebody_else_configured_is_left_alone(
    programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    own = """
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
      SystemdCgroup = true
"""
    host = _host(tmp_path, Distribution.KUBEADM, MAIN_V2 + own)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], calls)
    # In force it is for a containerd that was started since.
    run = host.run("configure", desired=desired(Board.JETPACK_6))
    assert (run.code, run.answer["restarted"]) == (0, ["containerd"]), run.errors
    assert "after containerd was started: left alone, restarted" in json.dumps(run.answer)
    assert [name for name in host.snapshot() if "conf.d" in name] == []
    assert host.read("/etc/containerd/config.toml") == MAIN_V2 + own
    assert host.run("restore").answer["restarted"] == []
    assert host.run("untouched").answer["untouched"]
    # Of another year, too, where the board's clock was ahead then, or is behind now.
    for written in (0, time.time() + 3600):
        os.utime(host.path("/etc/containerd/config.toml"), (written, written))
        run = host.run("configure", desired=desired(Board.JETPACK_6))
        assert (run.code, run.answer["changed"]) == (0, False), run.errors
    # Somebody's runtime with another cgroup driver than runc's does not work.
    host.write("/etc/containerd/config.toml", MAIN_V2 + own.replace("SystemdCgroup = true", ""))
    run = host.run("configure", desired=desired(Board.JETPACK_6))
    assert (run.code, run.answer["restarted"]) == (0, ["containerd"]), run.errors


@pytest.mark.parametrize("containerd", ["1.x", "2.x"], indirect=True)
def test_a_default_runtime_that_somebody_chose_is_in_force_until_they_take_it_away(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, calls)
    assert host.run("configure", desired=_WANTED).code == 0
    main = host.read("/etc/containerd/config.toml")
    table = "[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'nvidia'\n"
    host.write("/etc/containerd/config.toml", main + table)
    run = host.run("configure", desired=_WANTED)
    assert run.code == 0, run.errors
    assert _effective_in_place(host, containerd).default_runtime == "nvidia"
    assert host.run("check", desired=_WANTED).code == 0
    host.write("/etc/containerd/config.toml", main)
    assert host.run("configure", desired=_WANTED).code == 0
    after = _effective_in_place(host, containerd)
    assert (after.default_runtime, after.serves_nvidia) == ("runc", True)


def test_drift_is_found_and_put_right(programs: Mapping[Program, Path], serve: Serve, tmp_path: Path) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], calls)
    before = host.snapshot()
    assert host.run("configure", desired=_WANTED).code == 0
    host.path("/etc/containerd/conf.d/99-nvidia.toml").unlink()
    drift = host.run("check", desired=_WANTED)
    assert drift.code == 3
    assert [step["name"] for step in drift.answer["steps"] if step["changed"]] == ["containerd"]
    assert host.run("configure", desired=_WANTED).answer["restarted"] == ["containerd"]
    assert host.run("check", desired=_WANTED).code == 0
    assert host.run("restore").code == 0
    assert host.snapshot() == before


def test_handing_the_toolkit_to_the_operator_takes_ours_back_and_prepares_runc(
    programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], calls)
    before = host.snapshot()
    toolkit = host.read("/etc/nvidia-container-runtime/config.toml")
    assert host.run("configure", desired=_WANTED).code == 0
    handed = host.run("configure", desired=desired(Board.JETPACK_6, toolkit={"owner": "operator", "mode": "auto"}))
    assert (handed.code, handed.answer["restarted"]) == (0, ["containerd"]), handed.errors
    assert host.read("/etc/nvidia-container-runtime/config.toml") == toolkit
    assert not host.path("/etc/containerd/conf.d/99-nvidia.toml").exists()
    after = _effective(host, Distribution.KUBEADM, programs[CONTAINERD], tmp_path / "after.toml")
    assert after.runtime("nvidia") == {}
    assert host.path("/etc/containerd/conf.d/00-kai-anywhere-runc.toml").exists()
    assert host.run("restore").code == 0
    assert host.snapshot() == before


@pytest.mark.parametrize("owner", ["host", "operator"])
def test_a_file_in_the_folder_that_was_not_imported_is_put_into_force_for_nobody(
    owner: str, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], calls)
    stale = "/etc/containerd/conf.d/50-stale.toml"
    host.write(stale, MAIN_V2.replace("pause:3.10", "pause:stale"))
    before = host.snapshot()
    document = desired(Board.JETPACK_6, toolkit={"owner": owner, "mode": "auto"})
    run = host.run("configure", desired=document)
    assert run.code == 1, "it would come into force with the import of its folder"
    assert "would change other settings of containerd" in run.answer["error"]["message"]
    assert "pinned_images.sandbox" in run.answer["error"]["message"]
    assert host.snapshot() == before
    assert not calls.exists()
    host.path(stale).unlink()
    assert host.run("configure", desired=document).code == 0


_FOLDER = "/etc/containerd/conf.d"
_LISTS = {
    "a comment after the last": '[\n  "/etc/containerd/conf.d/50-site", # ours\n]',
    "a comment and no comma": '[\n  "/etc/containerd/conf.d/50-site" # ours\n]',
    "commented out": f'[\n  # "{_FOLDER}/*.toml",\n  "{_FOLDER}/50-site",\n]',
    "every file": f'["{_FOLDER}/*"]',
    "another ending": f'["{_FOLDER}/*-site"]',
    "without the whole path": '["./conf.d/50-site"]',
    "with the main file": f'["/etc/containerd/*.toml", "{_FOLDER}/50-site"]',
}


@pytest.mark.parametrize("imported", _LISTS.values(), ids=_LISTS)
def test_what_is_imported_already_stays_in_force_however_it_is_written(
    imported: str, containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    main = MAIN_V2.replace("version = 2\n", f"version = 2\nimports = {imported}\n")
    host = _host(tmp_path, Distribution.KUBEADM, main)
    host.write(f"{_FOLDER}/50-site", MAIN_V2.replace("pause:3.10", "pause:site"))
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, serve(host, Distribution.KUBEADM))
    before = _effective_in_place(host, containerd)
    assert _value(before, ("sandbox_image",), ("pinned_images", "sandbox")).endswith("pause:site")
    run = host.run("configure", desired=_WANTED)
    assert run.code == 0, run.errors
    after = _effective_in_place(host, containerd)
    assert after.serves_nvidia
    assert after.changed_beside_nvidia(before) == []
    assert host.run("check", desired=_WANTED).code == 0
    host.write("/etc/containerd/config.toml", host.read("/etc/containerd/config.toml") + "# theirs\n")
    assert host.run("restore").code == 0
    restored = tomllib.loads(host.read("/etc/containerd/config.toml"))
    assert restored == tomllib.loads(main)
    assert host.read("/etc/containerd/config.toml").count("# ours") == main.count("# ours")


def test_an_import_in_another_file_is_tried_as_it_will_be(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    host.write(f"{_FOLDER}/50-site.toml", f'version = 2\nimports = ["{_FOLDER}/more/site"]\n')
    host.write(f"{_FOLDER}/more/site", MAIN_V2.replace("pause:3.10", "pause:site"))
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, serve(host, Distribution.KUBEADM))
    before = host.snapshot()
    assert host.run("configure", desired=_WANTED).code == 1, "it would come into force with the folder"
    assert host.snapshot() == before
    host.write(f"{_FOLDER}/more/site", "version = 2\n")
    assert host.run("configure", desired=_WANTED).code == 0
    assert _effective_in_place(host, containerd).serves_nvidia


@pytest.mark.parametrize(
    ("imported", "says", "way_out"),
    [
        ("conf.d/*.toml", "in which it was started", "/etc/containerd/conf.d/*.toml"),
        ("/etc/containerd/*/*.toml", "together with other folders", "/etc/containerd/conf.d/*.toml"),
    ],
)
def test_a_pattern_of_which_nobody_can_tell_what_it_takes_in_is_refused_with_a_way_out(  # noqa: PLR0913, PLR0917
    imported: str,
    says: str,
    way_out: str,
    containerd_1: Path,
    programs: Mapping[Program, Path],
    serve: Serve,
    tmp_path: Path,
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM, f'imports = ["{imported}"]\n{MAIN_V2}')
    calls = serve(host, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd_1, calls)
    before = host.snapshot()
    run = host.run("configure", desired=_WANTED)
    assert run.code == 1
    assert f'/etc/containerd/config.toml imports "{imported}"' in run.answer["error"]["message"]
    assert says in run.answer["error"]["message"]
    assert way_out in run.answer["error"]["remedy"]
    assert host.snapshot() == before
    assert not calls.exists()
    seen = host.run("examine").answer["containerd"]
    assert (seen["merged"], seen["refused"]) == (None, None)
    assert imported in seen["unseen"]


@pytest.mark.parametrize("imported", ["conf.d/*.toml", "/etc/containerd/conf.d/*", "/etc/containerd/./conf.d/*.toml"])
def test_no_import_is_added_where_one_takes_in_the_folder_already(
    imported: str, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    main = f'imports = ["{imported}"]\n{MAIN_V2}'
    host = _host(tmp_path, Distribution.KUBEADM, main)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], serve(host, Distribution.KUBEADM))
    assert host.run("configure", desired=_WANTED).code == 0
    assert host.read("/etc/containerd/config.toml") == main
    assert _effective_in_place(host, programs[CONTAINERD]).serves_nvidia


def test_a_toolkit_from_before_drop_ins_gives_the_same_runtimes(
    containerd: Path, programs: Mapping[Program, Path], serve: Serve, tmp_path: Path
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], containerd, serve(host, Distribution.KUBEADM))
    before = _effective(host, Distribution.KUBEADM, containerd, tmp_path / "before.toml")
    (host.programs / "nvidia-ctk").unlink()
    tool = host.programs / "nvidia-ctk-in-place.py"
    tool.write_text(_IN_PLACE, encoding="utf-8")
    host.program(
        "nvidia-ctk",
        f"""case "$*" in
        *"configure --help"*) echo "--config --runtime";;
        *"--runtime containerd"*) exec {sys.executable} {tool} "$@";;
        *) exec {programs[NVIDIA_CTK]} "$@";;
        esac""",
    )
    run = host.run("configure", desired=_WANTED)
    assert run.code == 0, run.errors
    after = _effective(host, Distribution.KUBEADM, containerd, tmp_path / "after.toml")
    assert after.serves_nvidia
    assert after.changed_beside_nvidia(before) == []
    assert tomllib.loads(host.read("/etc/containerd/conf.d/99-nvidia.toml")).keys() == {"version", "plugins"}
    assert host.run("configure", desired=_WANTED).answer["changed"] is False


def test_a_machine_that_has_not_joined_a_kubeadm_cluster_yet_is_prepared_too(
    tmp_path: Path, programs: Mapping[Program, Path], serve: Serve
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    host.path("/etc/kubernetes/kubelet.conf").unlink()
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], serve(host, Distribution.KUBEADM))
    assert host.run("probe").answer["kubernetes"]["distribution"] == "none"
    document = _WANTED | {"distribution": "kubeadm"}
    done = host.run("configure", desired=document)
    assert (done.code, done.answer["changed"], done.answer["restarted"]) == (0, True, ["containerd"]), done.errors
    assert host.run("check", desired=document).code == 0


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "without its unit"])
def test_a_containerd_that_can_not_be_started_any_more_does_not_keep_a_host_from_being_restored(
    masked: bool, tmp_path: Path, programs: Mapping[Program, Path], serve: Serve
) -> None:
    host = _host(tmp_path, Distribution.KUBEADM)
    equip(host, Distribution.KUBEADM, programs[NVIDIA_CTK], programs[CONTAINERD], serve(host, Distribution.KUBEADM))
    assert host.run("configure", desired=_WANTED).code == 0
    if masked:
        mask = host.path("/etc/systemd/system/containerd.service")
        mask.parent.mkdir(parents=True)
        mask.symlink_to("/dev/null")
    else:
        host.path("/usr/lib/systemd/system/containerd.service").unlink()
    host.program("systemctl", "echo 'Unit containerd.service is masked, or not found.' >&2; exit 1")
    restored = host.run("restore")
    assert (restored.code, restored.answer["restarted"]) == (0, []), restored.errors
    assert host.read("/etc/containerd/config.toml") == MAIN_V2
    assert not host.path("/etc/containerd/conf.d").exists()
    assert not host.path("/var/lib/kai-anywhere").exists()
