"""A Pulumi program with the hosts of a stack alone, so that no cluster is needed; everything else is the product's."""

import pulumi

from components.hosts.hosts import Hosts, HostsArgs
from components.hosts.secrets import read_host_secrets
from config.stack import SETTINGS_KEY, StackConfigError, parse_settings

try:
    settings = parse_settings(pulumi.Config().get(SETTINGS_KEY), file=f"Pulumi.{pulumi.get_stack()}.yaml")
    secrets = read_host_secrets(settings.hosts)
except StackConfigError as error:
    raise pulumi.RunError(str(error)) from None

hosts = Hosts("hosts", HostsArgs(settings, secrets))
pulumi.export("platforms", hosts.platforms)
pulumi.export("gpu_memory_mib", pulumi.Output.all(**hosts.gpu_memory_mib))
