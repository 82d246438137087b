"""Remote GPUs through GVirtuS: backends, frontends, and what pods get."""
