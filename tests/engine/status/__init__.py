"""`kai-anywhere status` on a real API server."""
