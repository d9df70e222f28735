"""Notebook 14: whose fault an eviction is: the follower's, its leader's, or a neighbour's."""
