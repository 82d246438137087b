"""Metrics: the exporter, alerts, and what Grafana shows."""
