"""What the program reads from a live cluster, before it registers anything and while it waits."""
