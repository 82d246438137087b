"""`kai-anywhere verify`: does what was installed do its work?"""
