"""The answers of the API server, as far as they are read: a file for each kind of answer."""
