"""Checks of a host's container runtimes, from its own files. Asked with `--hosts`."""

from cluster.preflight.nodes import CDI_SINCE
from operations.doctor.check import Severity
from operations.doctor.checks.hosts import VERSION, FindingParts, host_check, of_each
from operations.doctor.facts import Facts
from operations.doctor.hosts.answer import Containerd, DropIn, Examination, HostReport

_MERGING_VERSION = 2
"""Of a configuration: what says less is taken for version 1, in which the nvidia runtime's section means nothing."""


def _lacking(answer: Examination) -> Containerd | None:
    """The containerd that was seen and lacks the nvidia runtime."""
    containerd = answer.containerd
    if (
        containerd is None
        or containerd.unseen
        or containerd.refused
        or containerd.merged is None
        or containerd.merged.has_nvidia
    ):
        return None
    return containerd


def _refused(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = answer.containerd
    if containerd is None or not containerd.refused:
        return None
    return "has a configuration that its containerd refuses.", (f"{containerd.config}: {containerd.refused}",), ""


def _has_no_version(containerd: Containerd) -> bool:
    return containerd.file_version is None or containerd.file_version < _MERGING_VERSION


def _no_version(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = _lacking(answer)
    if containerd is None or not _has_no_version(containerd):
        return None
    return (
        "has a containerd configuration without a version.",
        (f"{containerd.config} has no `version = 2` or later",),
        "",
    )


def _of_other_version(containerd: Containerd) -> list[DropIn]:
    return [
        drop_in
        for drop_in in containerd.drop_ins
        if drop_in.nvidia and drop_in.imported and drop_in.version != containerd.file_version
    ]


def _versions_differ(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = _lacking(answer)
    others = _of_other_version(containerd) if containerd else []
    if containerd is None or _has_no_version(containerd) or not others:
        return None
    versions = [f"{drop_in.path} has version {drop_in.version}" for drop_in in others]
    return (
        "has an nvidia runtime in a file that its containerd ignores.",
        (f"{containerd.config} has version {containerd.file_version}", *versions),
        "",
    )


def _not_imported(containerd: Containerd) -> list[str]:
    return [drop_in.path for drop_in in containerd.drop_ins if drop_in.nvidia and not drop_in.imported]


def _import_lost(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = _lacking(answer)
    lost = _not_imported(containerd) if containerd else []
    if containerd is None or _has_no_version(containerd) or not lost:
        return None
    evidence = tuple(f"{containerd.config} does not import {path}" for path in lost)
    return "has an nvidia runtime in a file that its containerd does not read.", evidence, ""


def _elsewhere(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = _lacking(answer)
    if containerd is None or not containerd.elsewhere:
        return None
    return (
        "has its nvidia runtime in another containerd's configuration.",
        tuple(f"{path} has it, {containerd.config} has not" for path in containerd.elsewhere),
        "",
    )


def _no_runtime(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = _lacking(answer)
    if (
        containerd is None
        or containerd.elsewhere
        or _not_imported(containerd)
        or _of_other_version(containerd)
        or _has_no_version(containerd)
    ):
        return None
    names = ", ".join(containerd.merged.runtimes if containerd.merged else ()) or "none"
    return "has no nvidia runtime in its containerd.", (f"{containerd.config}: runtimes: {names}",), ""


def _no_program(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    merged = answer.containerd.merged if answer.containerd else None
    if merged is None or not merged.lacks_program:
        return None
    return (
        f"has an nvidia runtime whose program is gone: {merged.nvidia_program}.",
        (f"containerd: BinaryName of the runtime: {merged.nvidia_program}",),
        "",
    )


def _no_default(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    merged = answer.containerd.merged if answer.containerd else None
    if merged is None or not merged.default_runtime or merged.default_runtime in merged.runtimes:
        return None
    return (
        f"has a containerd whose default runtime '{merged.default_runtime}' is not there.",
        (f"runtimes: {', '.join(merged.runtimes) or 'none'}",),
        "",
    )


def _cgroups(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    merged = answer.containerd.merged if answer.containerd else None
    if merged is None or not {"nvidia", "runc"} <= set(merged.runtimes):
        return None
    systemd_cgroup = merged.systemd_cgroup
    if systemd_cgroup.get("runc") == systemd_cgroup.get("nvidia"):
        return None
    values = tuple(f"SystemdCgroup of {name}: {str(value).lower()}" for name, value in sorted(systemd_cgroup.items()))
    return "has runtimes that disagree about cgroups.", values, ""


def _changes_others(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    containerd = answer.containerd
    if containerd is None or not containerd.changed:
        return None
    return "has an nvidia runtime whose file changes other settings of containerd.", tuple(containerd.changed), ""


def _too_old_for_cdi(facts: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    version = answer.containerd.version if answer.containerd else None
    match = VERSION.match(version or "")
    uses_cdi = facts.settings is not None and facts.settings.gpu_operator.install and facts.settings.gpu_operator.cdi
    if match is None or not uses_cdi or (int(match[1]), int(match[2])) >= CDI_SINCE:
        return None
    return f"has containerd {version}, and the stack uses CDI.", (f"containerd {version}",), ""


def _docker(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    if answer.docker is None or answer.docker.state not in {"empty", "invalid"}:
        return None
    fault = "empty" if answer.docker.state == "empty" else "not JSON"
    return "has a configuration of Docker that nobody can read.", (f"{answer.docker.config} is {fault}",), ""


_STARTS = ("KA0709", "KA0306", "KA0504", "KA0508")
_CONFIGURE = "Raise hosts.{name}.revision and run `pulumi up`: it puts the runtime into force."

CHECKS = (
    host_check(
        "KA1011",
        "A host's containerd refuses its configuration",
        of_each(_refused),
        symptom="containerd or k3s does not start: `table ... already exists`, or another word of its parser.",
        cause="A file that it reads was written by hand or by two programs: with k3s, a template that repeats what the "
        "base template has.",
        remedy="Correct the file that the message names; a template of k3s only adds to the base one. Then restart.",
        source="k3s-io/docs #566",
        explains=("KA0401", *_STARTS),
    ),
    host_check(
        "KA1017",
        "A host's default container runtime is not there",
        of_each(_no_default),
        symptom='The node is not ready: `no corresponding runtime configured in ... default_runtime_name = "runc"`.',
        cause="A drop-in of containerd 1.x replaces the whole section of runtimes, and has no runc.",
        remedy="Complete the last file that containerd reads with the section of runc. " + _CONFIGURE,
        source="METR/hawk #273; k0s #6547",
        explains=("KA0401",),
    ),
    host_check(
        "KA1012",
        "A host's containerd configuration has no version",
        of_each(_no_version),
        symptom="The nvidia runtime was configured, and containerd does not have it.",
        cause="A file without a version is read as version 1, in which the section of the runtime means nothing.",
        remedy="Write a full one on the host, with SystemdCgroup = true where the kubelet uses systemd: containerd "
        "config default. Then raise hosts.{name}.revision.",
        source="NVIDIA Container Toolkit #1430",
        explains=_STARTS,
    ),
    host_check(
        "KA1013",
        "Files of a host's containerd have different versions",
        of_each(_versions_differ),
        symptom="The file with the nvidia runtime is there and imported, and the runtime is not.",
        cause="containerd 2 ignores, without a word, an imported file of another version than the main one.",
        remedy="Bring both to one version: containerd config migrate. " + _CONFIGURE,
        source="containerd 2.1 and 2.2: cmd/containerd/server/config",
        explains=_STARTS,
    ),
    host_check(
        "KA1014",
        "A host's containerd does not import the nvidia runtime's file",
        of_each(_import_lost),
        symptom="After a restart or an update the nvidia runtime is gone, and its file lies where it was.",
        cause="The distribution has written its main configuration anew, without the import.",
        remedy=_CONFIGURE + " With microk8s and k3s, only their own templates outlive a restart.",
        source="microk8s #3959; GPU Operator #1651",
        explains=_STARTS,
    ),
    host_check(
        "KA1015",
        "The nvidia runtime was given to another containerd",
        of_each(_elsewhere),
        symptom="`nvidia-ctk runtime configure` has succeeded, and pods do not get the runtime.",
        cause="Docker's containerd is first in PATH, or the tool's default path is not the distribution's.",
        remedy=_CONFIGURE + " By hand, name the file: nvidia-ctk runtime configure --config.",
        source="NVIDIA Container Toolkit #982; microk8s-core-addons #272; GPU Operator #473",
        explains=_STARTS,
    ),
    host_check(
        "KA1016",
        "A host's containerd has no nvidia runtime",
        of_each(_no_runtime),
        symptom='`no runtime for "nvidia" is configured` where a pod is created.',
        cause="Nobody configured it: the host's toolkit was not, or the GPU Operator's has written another file.",
        remedy=_CONFIGURE + " Where the operator owns the toolkit, look at its toolkit pod's log.",
        source="GPU Operator #413, #432, #473, #730",
        explains=_STARTS,
    ),
    host_check(
        "KA1026",
        "The program of a host's nvidia runtime is gone",
        of_each(_no_program),
        symptom="Pods with RuntimeClass nvidia do not start, nor any pod where it is the default runtime: "
        "`fork/exec /usr/bin/nvidia-container-runtime: no such file or directory`.",
        cause="The container toolkit was removed, or the GPU Operator with its own, and containerd still names it.",
        remedy=_CONFIGURE + " Where the operator owns the toolkit, its toolkit pod installs it again.",
        source="nvidia-docker #686",
        explains=_STARTS,
    ),
    host_check(
        "KA1018",
        "Runtimes of a host disagree about cgroups",
        of_each(_cgroups),
        symptom='`expected cgroupsPath to be of format "slice:prefix:name"` where containers are created.',
        cause="SystemdCgroup is true for one runtime and not for the other; an update of a snap may lose it.",
        remedy="Set SystemdCgroup to true in containerd's options of both, and restart it.",
        source="k8s-snap #2529",
        explains=("KA0401", "KA0710"),
    ),
    host_check(
        "KA1019",
        "The nvidia runtime's file changes other settings",
        of_each(_changes_others),
        severity=Severity.WARNING,
        symptom="The pause image or a registry's mirror is another one than the main configuration says.",
        cause="The file was written by asking containerd for its configuration, and holds its whole section as it was "
        "then.",
        remedy="With containerd 2, remove the file and raise hosts.{name}.revision. With 1.x it must hold all of it: "
        "raise the revision after each change of the main file.",
        source="NVIDIA Container Toolkit v1.20.0 pkg/config/engine/containerd",
    ),
    host_check(
        "KA1020",
        "A host's containerd is too old for CDI",
        of_each(_too_old_for_cdi),
        symptom="`unresolvable CDI devices`, or containers without a GPU.",
        cause="containerd knows CDI from 1.7 on; k8s-snap 1.32 ships 1.6.",
        remedy="Set gpu_operator.cdi: false in the stack, or upgrade the distribution.",
        source="k8s-snap #2388",
        explains=("KA0707",),
    ),
    host_check(
        "KA1025",
        "A host's Docker configuration can't be read",
        of_each(_docker),
        symptom="Docker does not start, `nvidia-ctk runtime configure` fails, or buildkit's features are gone.",
        cause="/etc/docker/daemon.json is empty or no JSON: a tool was cut while it wrote, or wrote over it.",
        remedy="Write it anew on the host; an empty object is a valid one. Then raise hosts.{name}.revision.",
        source="NVIDIA Container Toolkit #2049",
    ),
)
