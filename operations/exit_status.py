"""What a command's exit status says, for scripts; docs/commands.md has it for people."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of every command."""

    WELL = 0
    """Done, and nothing to say."""
    COULD_NOT_RUN = 1
    """The command could not do its work: no cluster, wrong settings, missing rights."""
    USAGE = 2
    """Wrong options."""
    FAILED = 3
    """The command did its work, and what it looked at is not as it must be."""
    WARNINGS = 4
    """The command did its work, and there are warnings."""
    INTERRUPTED = 130
    """Ctrl-C, or SIGINT, ended the command."""
