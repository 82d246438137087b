"""Checks of what only a host knows: what the machine is, its driver, its devices, its toolkit. Asked with `--hosts`."""

import datetime as dt
import re
from collections.abc import Callable, Iterator
from functools import partial

from components.hosts.verdict import HostVerdictError, judge
from manifests.hosts import HostPlatform
from manifests.node_labels import GPU_MEMORY
from operations.doctor.check import Check, Finding, Severity, Subject, of_node
from operations.doctor.facts import Facts, Source
from operations.doctor.hosts.answer import Examination, HostReport

JETPACK_WITHOUT_NVML = "5"
_VERSIONED = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)*)$")
VERSION = re.compile(r"(\d+)\.(\d+)")
_MISMATCH = ("version mismatch", "(NVML error 18)")
_TAKES_INDEX_SINCE = (1, 19)
_NEEDED_CSV = re.compile(r"/(libcuda\.so|libnvidia-ml\.so)|^/dev/(nvmap|nvhost-ctrl-gpu|nvgpu/)")
_CLOCKS_DIFFER_SECONDS = 300
"""Kubernetes' controller manager dates the certificates that it signs that far back."""
_CHANGED_NOTHING = "Nothing was changed there. "
_AS_ROOT = (
    "Let doctor be root there: store the right password of sudo, and name it in hosts.{name}.sudo_password_secret; or "
    "allow the login sudo without one."
)
_NEEDS_ROOT = "needs root"
"""How the agent ends what it says of a file that a login may not see (agents/host/look/runtime.py)."""
_ON_THE_HOST = "See to that on the host, then look again."

FindingParts = tuple[str, tuple[str, ...], str]
"""What is wrong, evidence, and a remedy in place of the check's."""


def host_finding(report: HostReport, what: str, evidence: tuple[str, ...] = (), remedy: str = "") -> Finding:
    """A finding about a host; what fails on its node may follow from it."""
    here = frozenset({of_node(report.plan.node)})
    return Finding(
        Subject("Host", report.plan.node),
        f"host '{report.plan.node}' {what}",
        evidence,
        about=here,
        reach=here,
        remedy=remedy,
    )


def of_each(
    judged: Callable[[Facts, HostReport, Examination], FindingParts | None],
) -> Callable[[Facts], Iterator[Finding]]:
    """Findings about the hosts that answered, at most one of each."""

    def findings(facts: Facts) -> Iterator[Finding]:
        for report in (facts.hosts or {}).values():
            parts = judged(facts, report, report.examination) if report.examination else None
            if parts is not None:
                what, evidence, remedy = parts
                yield host_finding(report, what, evidence, remedy)

    return findings


def _not_looked_at(facts: Facts) -> Iterator[Finding]:
    for report in (facts.hosts or {}).values():
        answer = report.examination
        if answer is None:
            yield host_finding(report, f"could not be looked at: {report.trouble.rstrip('.')}.")
        elif answer.containerd is not None and answer.containerd.unseen:
            seen = (f"{answer.containerd.config}: {answer.containerd.unseen}",)
            remedy = _AS_ROOT if answer.containerd.unseen.endswith(_NEEDS_ROOT) else _ON_THE_HOST
            yield host_finding(
                report, "could be looked at in part alone: nothing is known of its containerd.", seen, remedy
            )


def _has_jetpack_5(answer: Examination) -> bool:
    return (answer.probe.platform.jetpack or "").split(".")[0] == JETPACK_WITHOUT_NVML


def _other_than_needed(_: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    if _has_jetpack_5(answer):
        return None
    try:
        judge(report.plan, answer.probe)
    except HostVerdictError as error:
        problem, remedy = str(error).split(_CHANGED_NOTHING, 1)
        what = problem.split(": ", 1)[1].strip()
        return f"is not as the stack needs it: {what}", tuple(answer.probe.platform.reasons), remedy
    return None


def _jetpack_5(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    if not _has_jetpack_5(answer):
        return None
    return f"runs JetPack {answer.probe.platform.jetpack}.", tuple(answer.probe.platform.reasons), ""


def _mismatch(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    reason = answer.probe.nvml.reason or ""
    if any(text in reason for text in _MISMATCH):
        return "has another driver loaded than its libraries are made for.", (f"NVML: {reason}",), ""
    loaded = answer.probe.driver.version
    places = answer.probe.libraries.nvml if answer.probe.libraries else []
    others = sorted({match[1] for place in places if (match := _VERSIONED.search(place.real))} - {loaded})
    if loaded is None or not others or answer.probe.nvml.ok:
        return None
    return (
        "has another driver loaded than its libraries are made for.",
        (f"the kernel's module is {loaded}", f"libnvidia-ml.so is of {', '.join(others)}"),
        "",
    )


def _no_nvml(facts: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    if answer.probe.nvml.ok or _has_jetpack_5(answer) or _mismatch(facts, report, answer):
        return None
    return "has no NVML that answers.", (f"NVML: {answer.probe.nvml.reason}", *answer.probe.driver.reasons), ""


def _no_devices(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    required = {
        HostPlatform.TEGRA: ("/dev/nvmap",),
        HostPlatform.SPARK: ("/dev/nvidiactl", "/dev/nvidia-uvm"),
        HostPlatform.X86: ("/dev/nvidiactl", "/dev/nvidia-uvm"),
    }.get(answer.probe.platform.kind, ())
    missing = [path for path in required if path not in answer.probe.devices]
    if not missing:
        return None
    remedy = (
        ""
        if answer.probe.platform.kind is not HostPlatform.TEGRA
        else "Reinstall the board's driver (nvidia-l4t-kernel, nvidia-l4t-core), and restart it."
    )
    return f"lacks {', '.join(missing)}.", (f"devices: {', '.join(answer.probe.devices) or 'none'}",), remedy


def _no_links(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    if answer.probe.platform.kind is HostPlatform.TEGRA or not answer.devices_without_link:
        return None
    return "has device files of its GPU without a link in /dev/char.", (", ".join(answer.devices_without_link),), ""


def _two_toolkits(_: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    if report.toolkit.get("owner") != "host" or not answer.operator_toolkit:
        return None
    return (
        "has a container toolkit of the GPU Operator beside its own.",
        ("/usr/local/nvidia/toolkit/nvidia-container-runtime is there",),
        "",
    )


def _uses_csv(report: HostReport, answer: Examination) -> bool:
    by_host = report.toolkit.get("owner") == "host"
    return by_host and answer.probe.platform.kind is HostPlatform.TEGRA and answer.probe.toolkit.mode != "cdi"


def _no_csv(_: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    if not _uses_csv(report, answer):
        return None
    if not answer.csv.files:
        return "has no lists of what a container gets from the board.", ("no *.csv",), ""
    missing = [path for path in answer.csv.missing if _NEEDED_CSV.search(path)]
    return ("lists files for containers that are not there.", tuple(missing), "") if missing else None


def _other_mode(_: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    desired, actual = report.toolkit.get("mode", "auto"), answer.probe.toolkit.mode or "auto"
    if report.toolkit.get("owner") != "host" or answer.probe.toolkit.config is None or desired == actual:
        return None
    return (
        f"has its container toolkit in mode '{actual}', and the stack says '{desired}'.",
        tuple(answer.probe.toolkit.reasons),
        "",
    )


def _by_index(facts: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    match = VERSION.match(answer.probe.toolkit.version or "")
    rewritten = facts.settings is not None and facts.settings.overridden_platform is not None
    if match is None or rewritten or not _uses_csv(report, answer):
        return None
    if (int(match[1]), int(match[2])) < _TAKES_INDEX_SINCE:
        return None
    return "takes no GPU by its UUID, which KAI writes.", (f"container toolkit {answer.probe.toolkit.version}",), ""


def _swap(_: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    if answer.probe.platform.kind is not HostPlatform.SPARK or not answer.swap_mib:
        return None
    return f"has {answer.swap_mib} MiB of swap, and a GPU that uses the machine's memory.", ("/proc/swaps",), ""


def _label_too_large(facts: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    node = facts.nodes.get(report.plan.node)
    label = node.labels.get(GPU_MEMORY, "") if node else ""
    total = answer.probe.memory.total_mib
    shares = answer.probe.platform.kind in {HostPlatform.TEGRA, HostPlatform.SPARK}
    if not shares or not label.isdecimal() or int(label) <= total:
        return None
    return f"has {total} MiB in all, and its node promises {label} MiB for one GPU.", (f"{GPU_MEMORY}={label}",), ""


def _not_validated(facts: Facts, __: HostReport, answer: Examination) -> FindingParts | None:
    if answer.validations != [] or not facts.has_operator:
        return None
    return "has lost what the GPU Operator's validator noted down.", ("/run/nvidia/validations is empty",), ""


def _wrong_clock(_: Facts, report: HostReport, answer: Examination) -> FindingParts | None:
    if report.heard_at is None:
        return None
    ahead = round(answer.clock - report.heard_at)
    if abs(ahead) <= _CLOCKS_DIFFER_SECONDS:
        return None
    by = f"{dt.timedelta(seconds=abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"
    there = dt.datetime.fromtimestamp(answer.clock, dt.UTC).isoformat()
    return f"has a clock that is {by} this machine's.", (f"there it was {there}",), ""


host_check = partial(Check, needs={Source.HOSTS})
_DRIVER = ("KA0504", "KA0505", "KA0508")

CHECKS = (
    host_check(
        "KA1001",
        "A host could not be looked at",
        _not_looked_at,
        severity=Severity.WARNING,
        symptom="Nothing is known of the host, or of its containerd.",
        cause="It does not answer, its key is another one, the login is refused, or Python is missing there. "
        "containerd's files may need root, and sudo refuses.",
        remedy="Do what the message says; docs/hosts.md, When it fails, has each. A machine that is no more: "
        "hosts.{name}.gone: true.",
        source="this program: docs/hosts.md; pulumi-command #1238, #104",
    ),
    host_check(
        "KA1003",
        "A host has a JetPack without NVML",
        of_each(_jetpack_5),
        symptom="Reservation pods end with `ERROR_LIBRARY_NOT_FOUND`, whatever they are given.",
        cause="JetPack 5 has no NVML; the file in CUDA's folder `stubs` is none.",
        remedy="Flash JetPack 6 or later, or take the node out of the stack.",
        source="ollama #3098; NVIDIA JetPack 6 release notes",
        explains=_DRIVER,
    ),
    host_check(
        "KA1002",
        "A host is not what the stack says",
        of_each(_other_than_needed),
        symptom="`pulumi up` stops at the host, or its node's labels are wrong.",
        cause="The machine was flashed, moved or replaced, or the stack file names another one.",
        remedy="Correct the stack, or the machine, as the message says.",
        source="this program: components/hosts/verdict.py",
        explains=("KA0411", "KA0504", "KA0508"),
    ),
    host_check(
        "KA1005",
        "A host's driver and its libraries differ",
        of_each(_mismatch),
        symptom="`nvidia-smi` says `Driver/library version mismatch`, and no pod gets a GPU.",
        cause="The driver's packages were upgraded, and the old kernel module is still loaded.",
        remedy="Restart the host; then hold the driver's packages back.",
        source="NVML: nvmlInit, error 18",
        explains=(*_DRIVER, "KA0306", "KA0403", "KA0507", "KA0711"),
    ),
    host_check(
        "KA1004",
        "A host's NVML does not answer",
        of_each(_no_nvml),
        symptom="`nvidia-smi` fails on the host, and reservation pods there do not say their GPU.",
        cause="The driver is not installed, not loaded, or hangs.",
        remedy="Run nvidia-smi on the host, and repair the driver until that works.",
        source="NVML: nvmlInit; NVIDIA k8s-device-plugin #1469, #1963",
        explains=(*_DRIVER, "KA0306", "KA0403"),
    ),
    host_check(
        "KA1006",
        "A host lacks device files of its GPU",
        of_each(_no_devices),
        symptom="The validator is ready, and CUDA fails; on a Jetson `NvRmMemInitNvmap failed`.",
        cause="The modules that make them are not loaded: nothing on the host has used the GPU since it started.",
        remedy="On the host: sudo nvidia-ctk system create-device-nodes --control-devices --load-kernel-modules",
        source="GPU Operator #2685; jetson-containers #384; nvidia-container-runtime #123",
        explains=("KA0505", "KA0508"),
    ),
    host_check(
        "KA1021",
        "A host's GPU devices have no links",
        of_each(_no_links),
        severity=Severity.WARNING,
        symptom="`Failed to initialize NVML: Unknown Error` in a pod that has run for a while.",
        cause="systemd reloads (a package was installed), and takes away devices that it finds no link of.",
        remedy="On the host: sudo nvidia-ctk system create-dev-char-symlinks --create-all, at each start. With CDI it "
        "does not happen.",
        source="NVIDIA Container Toolkit #48, #251, #1227",
    ),
    host_check(
        "KA1007",
        "A host has two container toolkits",
        of_each(_two_toolkits),
        symptom="Reservation pods on a Jetson find no NVML, though the host is configured.",
        cause="The GPU Operator has installed its own toolkit once. k3s and rke2 prefer it, and it ignores the host's "
        "configuration.",
        remedy="Label the node nvidia.com/gpu.deploy.container-toolkit=false, wait until its toolkit pod is gone, "
        "remove /usr/local/nvidia/toolkit on the host, and restart its Kubernetes.",
        source="k3s pkg/agent/containerd; GPU Operator v26.7.2; this program: agents/host/look/toolkit.py",
        explains=_DRIVER,
    ),
    host_check(
        "KA1008",
        "A Jetson's lists for containers lead nowhere",
        of_each(_no_csv),
        symptom="The container starts without /dev/nvmap, or without the driver's libraries: no CUDA device.",
        cause="Files below /etc/nvidia-container-runtime/host-files-for-container.d are missing, or of another release "
        "of the board's software.",
        remedy="On the board: sudo apt-get install --reinstall nvidia-l4t-init nvidia-container",
        source="nvidia-container-runtime #123",
        explains=_DRIVER,
    ),
    host_check(
        "KA1009",
        "A host's container toolkit is in another mode",
        of_each(_other_mode),
        symptom="Containers get no GPU, or end with `cannot locate libcuda.so`.",
        cause="Somebody changed /etc/nvidia-container-runtime/config.toml, or a package replaced it.",
        remedy="Raise hosts.{name}.revision and run `pulumi up`, or change the mode in the stack.",
        source="NemoClaw #9154; NVIDIA Container Toolkit v1.20.0",
        explains=(*_DRIVER, "KA0708"),
    ),
    host_check(
        "KA1010",
        "A Jetson's container toolkit takes GPUs by index only",
        of_each(_by_index),
        severity=Severity.WARNING,
        symptom="`unsupported device id: GPU-...` where a container is created.",
        cause="From 1.19 on the toolkit takes only `all` and `0` on such boards, and reservation.overrides is never.",
        remedy="Remove reservation.overrides: never from the stack: KAI's workloads are told index 0 then.",
        source="NVIDIA Container Toolkit v1.20.0 pkg/nvcdi/lib-csv.go; NemoClaw #9154",
        explains=("KA0708",),
    ),
    host_check(
        "KA1022",
        "A host with unified memory swaps",
        of_each(_swap),
        severity=Severity.WARNING,
        symptom="A DGX Spark freezes under memory pressure.",
        cause="The GPU's memory is the machine's, the page cache counts as used, and swapping makes it crawl.",
        remedy="On the host: sudo swapoff -a, and remove swap from /etc/fstab. Keep gpu_memory_reserve_mib.",
        source="NVIDIA developer forum 353752, 364886; vLLM #35313",
    ),
    host_check(
        "KA1023",
        "A node promises more memory than its host has",
        of_each(_label_too_large),
        needs={Source.HOSTS, Source.NODES},
        symptom="More fractions run than the GPU holds, and fail for want of memory.",
        cause=f"The label {GPU_MEMORY} was set by hand or by the product's name; firmware keeps a part of the memory.",
        remedy="Declare gpu_memory_mib below the host's memory, or leave it out: the host is asked then.",
        source="KAI #416",
    ),
    host_check(
        "KA1024",
        "A host has lost the GPU Operator's validations",
        of_each(_not_validated),
        needs={Source.HOSTS, Source.DEPLOYMENTS},
        severity=Severity.WARNING,
        symptom="After a restart, pods of the GPU Operator stay in Init.",
        cause="/run is empty after a restart, and the validator has not run again.",
        remedy="kubectl --namespace {operator_namespace} delete pod --selector app=nvidia-operator-validator "
        "--field-selector spec.nodeName={name}",
        source="GPU Operator #403, #1982",
        explains=("KA0306", "KA0309"),
    ),
    host_check(
        "KA1027",
        "A host's clock is wrong",
        of_each(_wrong_clock),
        severity=Severity.WARNING,
        symptom="`x509: certificate has expired or is not yet valid` on the host: its node does not join, images are "
        "not pulled, and apt says that a Release file is not valid yet.",
        cause="The board's clock has no battery, and it reaches no time server: after a power cut it starts in 1970, "
        "or where it stopped.",
        remedy="Compare `date -u` on both machines. On the host: sudo timedatectl set-ntp true, with a time server "
        "that it reaches; then restart its Kubernetes.",
        source="Go crypto/x509: Expired; apt-secure(8)",
        explains=("KA0401",),
    ),
)
