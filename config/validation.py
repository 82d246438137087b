"""What follows an install."""

from enum import StrEnum, unique


@unique
class Validation(StrEnum):
    """What follows an install.

    `none`: nothing. `after_up`: every `pulumi up` ends with what `kai-anywhere verify` checks without starting a pod,
    and fails where that does not hold (docs/commands.md#with-every-up).
    """

    NONE = "none"
    AFTER_UP = "after_up"
