"""Settings of what is added to KAI's reservation pods on Tegra nodes."""

from enum import StrEnum, unique

from config.model import Settings

POLICY_CARRIER_SINCE = (1, 36)
"""MutatingAdmissionPolicy is served as admissionregistration.k8s.io/v1 from this Kubernetes version on (KEP-3962)."""

POLICY_CARRIER_WAYS_OUT = {
    "reservation": (
        "Upgrade the cluster, use reservation.carrier: webhook, or set reservation.overrides: never where the "
        "container toolkit injects the GPU by itself."
    ),
    "gvirtus": "Upgrade the cluster, use gvirtus.carrier: webhook, or remove the section gvirtus.",
}
"""What to do where the API server does not serve it, by section of the settings."""


@unique
class Overrides(StrEnum):
    """Whether reservation pods of Tegra nodes get libraries, devices and privilege.

    `auto` follows the platform; `never` turns Tegra mode off once the container toolkit does this work by itself.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@unique
class Carrier(StrEnum):
    """How a change reaches a pod: an admission policy inside the API server, or an admission webhook of ours."""

    POLICY = "policy"
    WEBHOOK = "webhook"


class ReservationSettings(Settings):
    """KAI creates one reservation pod per shared GPU, in a namespace of its own."""

    overrides: Overrides = Overrides.AUTO
    carrier: Carrier = Carrier.POLICY
    """`webhook` is for Kubernetes before 1.36, and needs `admission.image`."""
