"""`kai-anywhere init`: a repository that holds only what is a team's own."""
