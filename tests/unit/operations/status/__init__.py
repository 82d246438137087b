"""Tests of the ways in which status shows the sharing map."""
