"""How a cluster is reached and asked: its kubeconfig, the connection, answers that are validated once."""
