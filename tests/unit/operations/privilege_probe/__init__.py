"""Tests of the privilege probe."""
