"""The admission server as tests and benchmarks deploy, load and attack it."""
