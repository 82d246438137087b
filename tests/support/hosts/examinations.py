"""Compliant answers of hosts to `examine`; a test changes one thing of them."""

import json
from collections.abc import Mapping

from manifests.hosts import host_plans
from operations.doctor.hosts.answer import HostReport, read_examination
from testbed.stacks import Json, changed, parse
from tests.support.hosts.answers import jetson_answer

HEARD_AT = 1_800_000_000
"""When hosts of tests answer."""


def jetson_examination() -> Json:
    """A Jetson on which nothing is wrong."""
    return {
        "version": 2,
        "probe": _probe(),
        "containerd": {
            "config": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "version": "2.1.4",
            "file_version": 3,
            "drop_ins": [],
            "elsewhere": [],
            "merged": {
                "default_runtime": "runc",
                "runtimes": ["nvidia", "runc"],
                "nvidia_program": "/usr/bin/nvidia-container-runtime",
                "lacks_program": False,
                "systemd_cgroup": {"runc": True, "nvidia": True},
            },
            "changed": [],
            "refused": None,
            "unseen": None,
        },
        "docker": None,
        "operator_toolkit": False,
        "csv": {"files": ["/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv"], "missing": []},
        "injection": {"l4t": "R36.4.3", "csv_digest": "sha256:c5a", "cdi_digest": None},
        "swap_mib": 0,
        "devices_without_link": [],
        "validations": None,
        "clock": HEARD_AT,
    }


def _probe() -> Json:
    """With as much memory as the stack of tests declares."""
    answer = jetson_answer()
    gpu = {**answer["gpus"][0], "memory_mib": 125772}
    return changed(changed(answer, "memory.total_mib", 125772), "gpus", [gpu])


def reports(settings: Json, answers: Mapping[str, Json | str]) -> dict[str, HostReport]:
    """What a stack's hosts said: an answer, or why there is none.

    Args:
        settings: the stack's.
        answers: by node.
    """
    stack = parse(changed(settings, "hosts", {node: {"local": True} for node in answers}))
    plans = host_plans(stack)
    return {
        node: HostReport(plans[node], trouble=said)
        if isinstance(said, str)
        else HostReport(plans[node], read_examination(json.dumps(said)), heard_at=HEARD_AT)
        for node, said in answers.items()
    }
