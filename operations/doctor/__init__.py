"""What is wrong with a cluster that shares GPUs, from the cause down, with evidence and a remedy. Changes nothing."""
