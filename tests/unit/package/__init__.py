"""Tests of the package for other languages."""
