"""`kai-anywhere status`: the sharing map as text, as a page, as JSON, once or again and again."""
