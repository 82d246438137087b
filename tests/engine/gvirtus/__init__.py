"""Remote GPUs on a real API server."""
