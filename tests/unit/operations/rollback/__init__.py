"""Tests of `kai-anywhere rollback`."""
