"""`kai-anywhere bundle`: what an issue report needs, in one archive without secrets."""
