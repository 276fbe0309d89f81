"""What-if scenarios: changes to the work of a cluster, and the plan under each."""
