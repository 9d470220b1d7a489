"""The benchmark: workloads, peers and the report."""
