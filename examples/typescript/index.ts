// The whole stack by version, in TypeScript: docs/teams.md, "From another language".
import { KaiAnywhere } from "kai-anywhere";

const gpus = new KaiAnywhere("gpus", {
    settings: {
        cluster: { distribution: "k3s" },
        platform: { kind: "tegra", tegra_nodes: { "jetson-1": { gpu_memory_mib: 28672 } } },
        kai: {
            queues: {
                robots: { parent: "default-parent-queue", gpu: { quota: 1, limit: -1, over_quota_weight: 1 } },
            },
        },
    },
});

export const platform = gpus.platform;
export const queues = gpus.queues;
