"""Manifests: by value."""
