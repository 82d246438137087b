"""The admission server, without an API server."""
