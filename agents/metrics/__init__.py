"""The exporter: tells Prometheus who has which share of which GPU, what is free and what waits.

It reads the API server with the program's own client and counts with the program's own sharing map: it says what
`kai-anywhere status` says.
"""
