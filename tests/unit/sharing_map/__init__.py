"""Tests of the sharing map."""
