"""A Pulumi program with one object of a cluster: what a preview of it costs, no program that has a cluster is below.

`benchmarks.projects` copies it into a project of its own.
"""

import pulumi

provider = pulumi.ProviderResource("kubernetes", "cluster", {"kubeconfig": pulumi.Config().require("kubeconfig")})
config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
pulumi.CustomResource("kubernetes:core/v1:ConfigMap", "one", config_map, pulumi.ResourceOptions(provider=provider))
