"""Every host that a stack prepares, all at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components import tokens
from components.hosts.agent import build_host_agent
from components.hosts.host import Host, HostArgs
from components.stack_state import read_deployed_names
from config.stack import StackSettings
from manifests.hosts import HostPlatform, host_plans


@dataclass(frozen=True)
class HostsArgs:
    """What Hosts needs.

    Attributes:
        settings: the stack's settings.
        secrets: what its hosts need to be reached and changed, by name.
    """

    settings: StackSettings
    secrets: Mapping[str, pulumi.Output[str]]


class Hosts(pulumi.ComponentResource):
    """One Host per declared host; they don't wait for each other.

    A host that fails ends the run once what has begun elsewhere is done; the next run goes on from there.

    Attributes:
        platforms: what each host says it is, by node.
        gpu_memory_mib: what KAI may share of one GPU, by node that shares its memory with it; not an output.
        ready: what everything else waits for; not an output.
    """

    platforms: pulumi.Output[dict[str, str | None]]
    gpu_memory_mib: dict[str, pulumi.Output[int | None]]
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: HostsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(tokens.HOSTS, name, None, opts)
        hosts = args.settings.hosts
        agent = build_host_agent()
        # Only a host that is gone makes the state worth a question.
        deployed = read_deployed_names() if any(host.gone for host in hosts.values()) else frozenset()
        registered: dict[str, Host] = {}
        plans = host_plans(args.settings)
        for node, plan in plans.items():
            host_args = HostArgs(hosts[node], plan, agent, args.secrets, deployed)
            registered[node] = Host(f"{name}-{node}", host_args, pulumi.ResourceOptions(parent=self))
        self.platforms = pulumi.Output.all(**{node: host.platform for node, host in registered.items()})
        # The label of a discrete GPU belongs to GPU Feature Discovery.
        self.gpu_memory_mib = {
            node: host.gpu_memory_mib
            for node, host in registered.items()
            if plans[node].platform is not HostPlatform.X86
        }
        self.ready = [ready for host in registered.values() for ready in host.ready]
        self.register_outputs({"platforms": self.platforms})
