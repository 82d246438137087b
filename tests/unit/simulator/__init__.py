"""Tests of the simulator that start no control plane."""
