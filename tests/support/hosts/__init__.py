"""Test support: hosts."""
