"""The ways in which hosts are known to fail, each with the checks that find it: none is left out."""

import pytest

from operations.doctor.check import Category
from operations.doctor.checks import CHECKS

_FAILURES = {
    "a reservation pod without NVIDIA's runtime finds no NVML": "KA0504 KA0516",
    "the GPU Operator's toolkit wins over a Jetson's own": "KA1007",
    "the container toolkit takes a Jetson's GPU by index only": "KA0708 KA1010",
    "the device plugin does not run under NVIDIA's runtime": "KA0306",
    "the device plugin finds no strategy": "KA0306",
    "containerd has no runtime 'nvidia'": "KA0709 KA1016",
    "a container toolkit was removed, and containerd names it": "KA0709 KA1026",
    "containerd's default runtime is gone, and the node is not ready": "KA0401 KA1017",
    "runc and nvidia disagree about cgroups": "KA0710 KA1018",
    "containerd's configuration has no version": "KA1012",
    "drop-in and main file have different versions": "KA1013",
    "the pause image or a registry's mirror is lost": "KA1019",
    "the drop-in is not read any more after a restart": "KA1014",
    "a template of k3s repeats what is there": "KA1011",
    "another containerd was configured": "KA1015",
    "containerd is too old for CDI": "KA0707 KA1020",
    "systemd takes devices away from a running pod": "KA1021",
    "Docker's daemon.json is broken": "KA1025",
    "a GPU with unified memory does not tell its memory": "KA0404",
    "a node has no label of its GPU's memory": "KA0404 KA0704",
    "a label promises more than the GPU has": "KA0416 KA1023",
    "a DGX Spark swaps": "KA1022",
    "a Jetson's devices may not be opened, or are missing": "KA0505 KA1006",
    "a Jetson's lists of files are missing": "KA1008",
    "the driver was upgraded, and its old module is loaded": "KA0507 KA0711 KA1005",
    "/dev/nvidia-uvm is missing": "KA1006",
    "the validator's notes are gone after a restart": "KA0309 KA1024",
    "JetPack 5 has no NVML": "KA1003",
    "a Jetson's toolkit is in a mode that finds no libcuda": "KA1009",
    "a DaemonSet has no pods on a Jetson": "KA0306 KA0403",
    "the operator's toolkit writes another file than containerd reads": "KA1014 KA1015 KA1016",
    "a board without a battery for its clock starts in another year": "KA1027",
    "a host does not answer while it restarts": "KA1001",
    "a host is gone": "KA1001",
}
"""Not here, since no look can find them: what only a run of the engine shows, and its own inputs rule out (a file that
a late deletion takes away, variables that sshd refuses)."""


@pytest.mark.parametrize("failure", _FAILURES)
def test_a_failure_of_hosts_has_checks(failure: str) -> None:
    codes = {check.code for check in CHECKS}
    assert set(_FAILURES[failure].split()) <= codes


def test_every_check_of_hosts_is_for_one_of_the_failures() -> None:
    covered = {code for codes in _FAILURES.values() for code in codes.split()}
    hosts = {check.code for check in CHECKS if check.category is Category.HOSTS}
    assert hosts - covered == {"KA1002", "KA1004"}, "what the stack says, and a driver that does not answer at all"
