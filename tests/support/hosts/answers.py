"""Compliant answers of hosts to `probe`; a test changes one thing of them."""

from testbed.stacks import Json, changed

NVIDIA = "/usr/lib/aarch64-linux-gnu/nvidia"
NVML_FAILURES = {
    4: "Insufficient Permissions",
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    18: "RM has detected an NVML/RM version mismatch.",
    999: "Unknown Error",
}
"""What NVML calls its errors, as pynvml (nvidia-ml-py 13) has it."""


def no_nvml(code: int) -> Json:
    """What a host tells of an NVML that does not start."""
    return {"ok": False, "reason": f"NVML does not start: {NVML_FAILURES[code]} (NVML error {code})"}


def place(folder: str, *, state: str = "library", real: str | None = None) -> Json:
    """Where NVML's library is, or what stands there instead of it."""
    path = f"{folder}/libnvidia-ml.so.1"
    size = {"library": 2048, "stub": 0}.get(state)
    return {"folder": folder, "path": path, "real": real or path, "bytes": size, "state": state}


def jetson_answer() -> Json:
    """A Jetson Orin with JetPack 6 and k3s."""
    return {
        "version": 2,
        "architecture": "aarch64",
        "python": "3.10.12",
        "platform": {
            "kind": "tegra",
            "generation": "orin",
            "model": "NVIDIA Jetson AGX Orin Developer Kit",
            "jetpack": "6.2",
            "reasons": ["/etc/nv_tegra_release exists"],
        },
        "driver": {"version": "540.4.0", "library_folder": NVIDIA, "reasons": []},
        "libraries": {
            "folders": [{"path": NVIDIA, "real": NVIDIA, "named_by": []}],
            "nvml": [place(NVIDIA)],
            "cuda": [],
            "findings": [],
        },
        "kernel": {"release": "5.15.148-tegra", "config": "/proc/config.gz", "gaps": [], "reasons": []},
        "devices": ["/dev/nvmap"],
        "gpus": [
            {
                "index": 0,
                "uuid": "ab-cd",
                "name": "Orin (nvgpu)",
                "memory_mib": 62841,
                "memory_source": "cuda",
                "memory_reasons": ["NVML does not tell it: Not Supported (NVML error 3)", "CUDA tells 62841 MiB"],
            }
        ],
        "nvml": {"ok": True, "reason": None},
        "cuda": {"ok": True, "reason": None},
        "memory": {"total_mib": 62841},
        "runtimes": [
            {"name": "containerd", "version": "2.1.4", "config": "/etc/containerd/config.toml", "reasons": []}
        ],
        "kubernetes": {"distribution": "k3s", "version": "v1.34.1", "reasons": ["k3s is there"]},
        "toolkit": {
            "version": "1.20.0",
            "mode": "auto",
            "config": "/etc/nvidia-container-runtime/config.toml",
            "reasons": [],
        },
        "user": {"uid": 1000},
    }


def spark_answer() -> Json:
    """A DGX Spark."""
    answer = changed(jetson_answer(), "platform.kind", "spark")
    answer = changed(answer, "platform.jetpack", None)
    answer = changed(answer, "memory.total_mib", 124610)
    return changed(answer, "gpus", [jetson_answer()["gpus"][0] | {"memory_mib": None, "memory_source": None}])


def x86_answer() -> Json:
    """A machine with two discrete GPUs."""
    answer = changed(changed(jetson_answer(), "platform.kind", "x86"), "architecture", "x86_64")
    gpu = jetson_answer()["gpus"][0] | {"name": "NVIDIA RTX A6000", "memory_mib": 49140, "memory_source": "nvml"}
    return changed(answer, "gpus", [gpu, gpu | {"index": 1}])
