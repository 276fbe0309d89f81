"""Clusterwise regression: users in clusters, one regression a cluster."""
