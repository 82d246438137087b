"""A stack from its first `up` to its end: on a cluster, or on its simulator."""
