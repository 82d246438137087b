"""Every check, causes before what follows from them. A category, or a topic of one, has its own module."""

from operations.doctor.check import Check
from operations.doctor.checks import (
    admission,
    binding,
    cluster,
    gpu_groups,
    gpu_operator,
    gvirtus,
    host_runtimes,
    hosts,
    kai,
    monitoring,
    nodes,
    pods,
    queues,
    reservation_pods,
    reservation_setup,
)
from operations.doctor.facts import Source

CHECKS: tuple[Check, ...] = (
    *cluster.CHECKS,
    *hosts.CHECKS,
    *host_runtimes.CHECKS,
    *kai.CHECKS,
    *gpu_operator.CHECKS,
    *nodes.CHECKS,
    *admission.CHECKS,
    *reservation_setup.CHECKS,
    *reservation_pods.CHECKS,
    *gpu_groups.CHECKS,
    *binding.CHECKS,
    *queues.CHECKS,
    *gvirtus.CHECKS,
    *pods.CHECKS,
    *monitoring.CHECKS,
)
OF_HOSTS_ALONE: tuple[Check, ...] = tuple(check for check in CHECKS if check.needs == {Source.HOSTS})
"""What hosts say without a look at their cluster."""
