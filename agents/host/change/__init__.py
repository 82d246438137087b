"""Changes a host: the plan, the journal of what was written, and the way back."""
