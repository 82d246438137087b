"""`doctor`: every check, what is read, what is said, and the page that is made of it."""
