"""Tests of `operations/`: the commands behind make."""
