"""`init`: a repository of a team's own."""
