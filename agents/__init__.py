"""Programs that run elsewhere: on hosts and in pods. Each has its own dependencies, none knows the Pulumi program."""
