"""Agents, without any program that only a toolchain or a distribution's package brings."""
