"""Test support: admission."""
