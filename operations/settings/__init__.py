"""The reference of the settings: the commands that print it, and the files that are made of it."""
