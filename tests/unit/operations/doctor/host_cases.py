"""For each check of hosts: what a host says that makes it fire, and what almost does."""

from typing import Final

from testbed.stacks import Json, changed, jetson, never
from tests.support.doctor import World
from tests.support.hosts.answers import no_nvml
from tests.support.hosts.examinations import HEARD_AT, jetson_examination
from tests.unit.operations.doctor.case import Case
from tests.unit.operations.doctor.changes import Break

_LACKS: Final = {
    "default_runtime": "runc",
    "runtimes": ["runc"],
    "nvidia_program": "",
    "lacks_program": False,
    "systemd_cgroup": {"runc": True, "nvidia": False},
}
_FOLDER: Final = "/etc/containerd/conf.d"


def _says(*changes: tuple[str, object]) -> Break:
    """A Jetson that answers, with some of it changed."""

    def change(world: World) -> None:
        answer = jetson_examination()
        for path, value in changes:
            answer = changed(answer, path, value)
        world.hosts = {"jetson-1": answer}

    return change


def _drop_in(version: int | None, *, imported: bool) -> list[Json]:
    return [{"path": f"{_FOLDER}/99-nvidia.toml", "version": version, "imported": imported, "nvidia": True}]


def _silent(world: World) -> None:
    world.hosts = {"jetson-1": "after 2 failed attempts: connection refused"}


def _kind(name: str) -> tuple[str, object]:
    return ("probe.platform.kind", name)


_NO_NVML: Final = ("probe.nvml", no_nvml(9))
_MERGED: Final = ("containerd.merged", _LACKS)

HOST_CASES: Final = {
    "KA1001": Case(_silent, _says(("probe.python", "3.8.0"))),
    "KA1002": Case(_says(_kind("x86"), ("probe.devices", ["/dev/nvidiactl", "/dev/nvidia-uvm"])), _says()),
    "KA1003": Case(_says(("probe.platform.jetpack", "5.1")), _says(("probe.platform.jetpack", "6.0"))),
    "KA1004": Case(_says(_NO_NVML), _says(("probe.cuda", {"ok": False, "reason": "it crashed"}))),
    "KA1005": Case(
        _says(("probe.nvml", no_nvml(18))),
        _says(_NO_NVML),
        "KA1004",
    ),
    "KA1006": Case(_says(("probe.devices", [])), _says(("probe.devices", ["/dev/nvmap", "/dev/nvhost-ctrl-gpu"]))),
    "KA1007": Case(
        _says(("operator_toolkit", True)),
        _says(("operator_toolkit", True)),
        almost_on=lambda: changed(jetson(), "platform.container_toolkit", "operator"),
    ),
    "KA1008": Case(_says(("csv.files", [])), _says(("csv.missing", ["/usr/lib/aarch64-linux-gnu/libfuse.so"]))),
    "KA1009": Case(_says(("probe.toolkit.mode", "legacy")), _says(("probe.toolkit.mode", None))),
    "KA1010": Case(_says(("probe.toolkit.version", "1.19.0")), _says(("probe.toolkit.version", "1.18.2")), stack=never),
    "KA1011": Case(
        _says(("containerd.refused", "toml: table runc already exists"), ("containerd.merged", None)),
        _says(("containerd.unseen", "is not there, or needs root"), ("containerd.merged", None)),
        "KA1001",
    ),
    "KA1012": Case(_says(("containerd.file_version", None), _MERGED), _says(("containerd.file_version", None))),
    "KA1013": Case(
        _says(_MERGED, ("containerd.drop_ins", _drop_in(2, imported=True))),
        _says(("containerd.drop_ins", _drop_in(2, imported=True))),
    ),
    "KA1014": Case(
        _says(_MERGED, ("containerd.drop_ins", _drop_in(3, imported=False))),
        _says(("containerd.drop_ins", _drop_in(3, imported=False))),
    ),
    "KA1015": Case(
        _says(_MERGED, ("containerd.elsewhere", ["/etc/containerd/config.toml"])),
        _says(("containerd.elsewhere", ["/etc/containerd/config.toml"])),
    ),
    "KA1016": Case(_says(_MERGED), _says(("containerd.merged.nvidia_program", ""))),
    "KA1017": Case(
        _says(("containerd.merged.runtimes", ["nvidia"])), _says(("containerd.merged.default_runtime", "nvidia"))
    ),
    "KA1018": Case(
        _says(("containerd.merged.systemd_cgroup", {"runc": True, "nvidia": False})),
        _says(("containerd.merged.systemd_cgroup", {"runc": False, "nvidia": False})),
    ),
    "KA1019": Case(_says(("containerd.changed", ["plugins.cri.sandbox_image"])), _says(("containerd.changed", []))),
    "KA1020": Case(_says(("containerd.version", "1.6.28")), _says(("containerd.version", "1.7.1"))),
    "KA1021": Case(
        _says(_kind("spark"), ("devices_without_link", ["/dev/nvidia0"])),
        _says(("devices_without_link", ["/dev/nvidia0"])),
    ),
    "KA1022": Case(_says(_kind("spark"), ("swap_mib", 8192)), _says(("swap_mib", 8192))),
    "KA1023": Case(_says(("probe.memory.total_mib", 4096)), _says(("probe.memory.total_mib", 122880))),
    "KA1024": Case(_says(("validations", [])), _says(("validations", ["driver-ready"]))),
    "KA1025": Case(
        _says(("docker", {"config": "/etc/docker/daemon.json", "state": "invalid"})),
        _says(("docker", {"config": "/etc/docker/daemon.json", "state": "valid"})),
    ),
    "KA1026": Case(
        _says(("containerd.merged.lacks_program", True)),
        _says(("containerd.merged.nvidia_program", "nvidia-container-runtime")),
    ),
    "KA1027": Case(_says(("clock", HEARD_AT - 3600)), _says(("clock", HEARD_AT - 290))),
}
