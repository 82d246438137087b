"""Charts as helm renders them."""
