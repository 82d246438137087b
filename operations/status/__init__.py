"""`kai-anywhere status`: who has which share of which GPU, what is free, and what waits and why."""
