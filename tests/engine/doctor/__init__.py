"""The command doctor with the real engine."""
