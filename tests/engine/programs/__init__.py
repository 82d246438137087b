"""The programs that are built, and the agents' image."""
