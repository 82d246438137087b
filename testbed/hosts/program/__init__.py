"""A program for tests of hosts."""
