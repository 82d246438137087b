"""A release: its files, its bill of materials, its docs."""
