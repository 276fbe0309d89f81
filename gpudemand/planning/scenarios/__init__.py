"""What-if scenarios: changes of the workload of a cluster, and the plan under each."""
