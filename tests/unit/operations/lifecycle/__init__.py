"""A stack from its first `up` to its end."""
