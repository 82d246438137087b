"""Tests against the real engine and the real control plane."""
