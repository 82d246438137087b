"""The table of pod checks, on neutral ground: it imports nothing, and both interpreters import it."""
