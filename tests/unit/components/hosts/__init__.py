"""Tests of the components for hosts."""
