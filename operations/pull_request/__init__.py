"""What a reviewer reads: a preview as a comment, drift as an issue.

`events`, `differences`, `redaction`, `markdown` and `comment` are pure: an event log in, a text out.
"""
