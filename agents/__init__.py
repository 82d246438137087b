"""Programs that run on hosts and in pods: they stand alone, with dependencies of their own."""
