"""Many clusters: settings of several files on the real engine, real states, the operator's own schema."""
