"""What a reviewer reads: a preview as a comment, drift as an issue.

`report`, `differences`, `redaction`, `markdown`, `comment` and `verified` are pure: an event log in, a text out.
"""
