"""Type tokens of the components: `kai-anywhere:index:<Class>`, the form that a multi-language package needs."""

from typing import Final

from cluster.ownership import deployed_state
from manifests import many_nodes

KAI_ANYWHERE: Final = deployed_state.TOP
NODE_LABELS: Final = "kai-anywhere:index:NodeLabels"
MANY_NODE_LABELS: Final = many_nodes.MANY_NODE_LABELS
GPU_OPERATOR: Final = "kai-anywhere:index:GpuOperator"
POD_GUARD: Final = "kai-anywhere:index:PodGuard"
RESERVATION_OVERRIDES: Final = "kai-anywhere:index:ReservationOverrides"
ADMISSION_SERVER: Final = "kai-anywhere:index:AdmissionServer"
KAI_SCHEDULER: Final = "kai-anywhere:index:KaiScheduler"
HOST: Final = "kai-anywhere:index:Host"
HOSTS: Final = "kai-anywhere:index:Hosts"
GVIRTUS: Final = "kai-anywhere:index:Gvirtus"
MONITORING: Final = "kai-anywhere:index:Monitoring"
VERIFICATION: Final = "kai-anywhere:index:Verification"
