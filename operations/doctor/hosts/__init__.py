"""Hosts of a stack, asked over SSH what only they know. Nothing is changed there, and nothing stays."""
