"""Host commands over SSH: one component per host, and what they share."""
