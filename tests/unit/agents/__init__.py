"""Agents: programs that stand alone."""
