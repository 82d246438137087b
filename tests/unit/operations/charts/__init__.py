"""`plan`: from flags, files, settings and a cluster, to a picture and JSON."""
