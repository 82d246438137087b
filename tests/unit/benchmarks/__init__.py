"""Benchmarks: what is made of their numbers. The measuring itself is `make bench`."""
