"""Tests of the sharing map and its ways out."""
