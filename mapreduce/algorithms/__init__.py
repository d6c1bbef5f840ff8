"""Algorithms that are sums over slices of a dataset."""
