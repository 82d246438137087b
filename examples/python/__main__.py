"""The whole stack by version, in Python: docs/teams.md, "From another language"."""

import kai_anywhere
import pulumi

gpus = kai_anywhere.KaiAnywhere(
    "gpus",
    settings={
        "cluster": {"distribution": "k3s"},
        "platform": {"kind": "tegra", "tegra_nodes": {"jetson-1": {"gpu_memory_mib": 28672}}},
        "kai": {
            "queues": {
                "robots": {
                    "parent": "default-parent-queue",
                    "gpu": {"quota": 1, "limit": -1, "over_quota_weight": 1},
                },
            },
        },
    },
)
pulumi.export("platform", gpus.platform)
pulumi.export("queues", gpus.queues)
