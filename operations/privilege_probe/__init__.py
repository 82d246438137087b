"""`make probe-privilege`: how much of its Jetson a reservation pod needs, asked of the board itself."""
