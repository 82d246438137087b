"""The Pulumi program: validate the stack's settings, look at the cluster, register KaiAnywhere."""

import pulumi

from cluster.errors import ClusterError
from components.installation import install
from config.stack import SETTINGS_KEY, StackConfigError

try:
    settings_json = pulumi.Config().get(SETTINGS_KEY)
    top = install("kai-anywhere", settings_json, file=f"Pulumi.{pulumi.get_stack()}.yaml")
except (StackConfigError, ClusterError) as error:
    raise pulumi.RunError(str(error)) from None

for name, value in top.outputs.items():
    pulumi.export(name, value)
