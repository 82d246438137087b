"""Metrics with the real programs: Prometheus' own promtool, and the exporter beside a real API server."""
