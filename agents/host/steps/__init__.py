"""One file of the container runtime per step: what it must say, and what a restart needs."""
