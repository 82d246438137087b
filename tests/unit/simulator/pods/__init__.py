"""Tests of pods that are processes, without a control plane."""
