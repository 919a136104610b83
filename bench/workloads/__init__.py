"""One module per workload."""
