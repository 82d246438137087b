"""Tests of the comment on a pull request."""
