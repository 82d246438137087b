"""Hosts on the real engine, over a real sshd."""
