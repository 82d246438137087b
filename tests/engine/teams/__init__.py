"""A team that takes the product by version, on the real engine."""
