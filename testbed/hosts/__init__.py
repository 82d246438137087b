"""Machines behind a real sshd, and stacks that configure them."""
