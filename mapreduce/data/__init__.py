"""Datasets: Arrow shards with a manifest, how they are made, and in what order they are read."""
