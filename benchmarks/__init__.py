"""Measurements: ratios taken in one run, printed, never asserted."""
