"""`make policy`: runs the policy pack on a stack's preview, and proves that it was in force."""

from operations.policy_check.configuration import PACK, Pack
from operations.policy_check.guard import prove
from operations.policy_check.preview import Judged, judged
from operations.policy_check.table import render

__all__ = ["PACK", "Judged", "Pack", "judged", "prove", "render"]
