"""What boards do to the privilege probe's pods, as a script says it."""
