"""The sharing map: from what was read of a cluster to who has which share of which GPU, and what waits. Pure."""
