"""Every check, causes before what follows from them. A category has its own module."""

from operations.doctor.check import Check
from operations.doctor.checks import (
    admission,
    cluster,
    gpu_operator,
    gvirtus,
    host_runtimes,
    hosts,
    kai,
    monitoring,
    nodes,
    pods,
    queues,
    reservation,
)

CHECKS: tuple[Check, ...] = (
    *cluster.CHECKS,
    *hosts.CHECKS,
    *host_runtimes.CHECKS,
    *kai.CHECKS,
    *gpu_operator.CHECKS,
    *nodes.CHECKS,
    *admission.CHECKS,
    *reservation.CHECKS,
    *queues.CHECKS,
    *gvirtus.CHECKS,
    *pods.CHECKS,
    *monitoring.CHECKS,
)
