"""The admission server as a real process with real TLS, called by a real API server.

Only two things are not as in a cluster: the replicas are processes, and the Service before them is on loopback.
"""
