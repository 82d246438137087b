"""Properties of the whole program, for random valid settings."""
