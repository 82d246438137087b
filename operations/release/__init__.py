"""A release of this program: its files, its bill of materials, its docs beside those of other versions."""
