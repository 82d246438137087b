"""One rule per module; each is metadata and a pure function."""

from policy.rule import Rule
from policy.rules import (
    admission,
    custom_resources,
    devices,
    helm,
    host_access,
    host_paths,
    images,
    namespaces,
    privileged,
    raw_yaml,
    rbac,
    scheduling,
    secrets_and_host_commands,
)

POD_RULES: tuple[Rule, ...] = (
    privileged.RULE,
    host_paths.RULE,
    host_access.RULE,
    devices.RULE,
    scheduling.RULE,
    images.RULE,
)
"""What is asked of everything that is or becomes a pod."""

CLUSTER_RULES: tuple[Rule, ...] = (
    namespaces.RULE,
    admission.RULE,
    custom_resources.RULE,
    helm.RULE,
    raw_yaml.RULE,
    rbac.RULE,
    secrets_and_host_commands.RULE,
)
"""What is asked of everything that steers the cluster or the hosts."""

RULES: tuple[Rule, ...] = POD_RULES + CLUSTER_RULES
