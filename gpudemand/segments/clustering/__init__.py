"""Clustering of users: spherical mixtures, consensus of several views, the number of segments."""
