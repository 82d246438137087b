"""The exporter of metrics, without an API server."""
