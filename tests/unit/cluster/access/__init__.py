"""How a cluster is reached and what it answers."""
