"""The server's certificates: made, kept, published, served."""
