"""Tests of the bundle for issue reports."""
