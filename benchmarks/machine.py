"""The machine that measured: without it numbers of different runs can't be compared."""

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import psutil

from toolchain.programs import ETCD_VERSION, KUBERNETES_VERSION, PULUMI_VERSION

_BUSY = 0.7
"""Load per core from which wall times say more about the neighbours."""


def describe() -> dict[str, str]:
    """What concerns measurements, by name."""
    return {
        "Processor": processor(Path("/proc/cpuinfo")),
        "Cores": str(os.cpu_count() or 1),
        "Memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "Pulumi": f"{PULUMI_VERSION}, SDK {version('pulumi')}",
        "Kubernetes": f"{KUBERNETES_VERSION}, etcd {ETCD_VERSION}",
        "Load before": load(),
    }


def processor(cpuinfo: Path) -> str:
    """The processor's name, or its architecture where nobody says it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return models[0] if models else platform.machine()


def load() -> str:
    """The load average of a minute."""
    return f"{os.getloadavg()[0]:.1f}" if sys.platform != "win32" else "unknown"


def warning(before: float, after: float, cores: int) -> str | None:
    """What a reader must know of a machine that had other work, None where it had none.

    Args:
        before: load average of a minute when the run began.
        after: the same at its end; the run's own work is in it.
        cores: of the machine.
    """
    if before / cores < _BUSY:
        return None
    return (
        f"This machine had other work: its load was {before:.1f} on {cores} cores before the run and {after:.1f} after "
        "it. Processor times and ratios of many rounds still hold; wall times are upper bounds."
    )


def rows(described: Mapping[str, str]) -> list[str]:
    """The same as lines of a Markdown table."""
    return ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in described.items())]
