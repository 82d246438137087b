"""What the emulated operators decide, by value: one file for each."""
