"""Faults: one table of what can go wrong, and of the tests that prove what happens then (`make test-faults`)."""
