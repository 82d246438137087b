"""The Pulumi program: validate the stack's settings, look at the cluster, register KaiAnywhere."""

import pulumi

from cluster.errors import ClusterError
from cluster.preflight import run_preflight
from components.host_secrets import read_host_secrets
from components.kai_anywhere import KaiAnywhere, KaiAnywhereArgs
from components.stack_state import read_stack_state
from config.stack import SETTINGS_KEY, StackConfigError, parse_settings

try:
    settings = parse_settings(pulumi.Config().get(SETTINGS_KEY), file=f"Pulumi.{pulumi.get_stack()}.yaml")
    host_secrets = read_host_secrets(settings.hosts)
    preflight = run_preflight(settings, read_stack_state(), preview=pulumi.runtime.is_dry_run())
except (StackConfigError, ClusterError) as error:
    raise pulumi.RunError(str(error)) from None
for warning in preflight.warnings:
    pulumi.log.warn(warning)

top = KaiAnywhere("kai-anywhere", KaiAnywhereArgs(settings, preflight.cluster_uid, host_secrets))
pulumi.export("platform", top.platform)
pulumi.export("tegra_nodes", top.tegra_nodes)
pulumi.export("gpu_operator_version", top.gpu_operator_version)
pulumi.export("kai_version", top.kai_version)
pulumi.export("queues", top.queues)
pulumi.export("gvirtus_backends", top.gvirtus_backends)
