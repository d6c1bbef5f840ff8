"""Algorithms that are sums of whole numbers: what is fitted has the same bits for any workers."""
