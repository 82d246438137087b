"""Many clusters: their order, their roll-out and their states."""
