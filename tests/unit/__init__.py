"""Tests that need no toolchain."""
