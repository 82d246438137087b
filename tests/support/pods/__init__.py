"""Test support: pods."""
