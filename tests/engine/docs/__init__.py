"""The commands of the guides, run as they stand there."""
