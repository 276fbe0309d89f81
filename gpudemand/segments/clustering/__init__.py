"""Clusters of users: centroids, mixture models, the number of clusters, consensus."""
