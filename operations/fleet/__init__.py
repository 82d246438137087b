"""Many clusters, one stack each: the order in which they are updated, and what their states say."""
