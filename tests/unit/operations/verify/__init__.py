"""Tests of `kai-anywhere verify`."""
